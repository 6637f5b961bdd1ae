package process

import (
	"fmt"
	"path/filepath"
	"strings"
)

// within returns a folder with its links followed, and refuses one that is then in none of
// those allowed.
func within(dir string, allowed []string) (string, error) {
	if len(allowed) == 0 {
		return dir, nil
	}
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("the working directory %s cannot be looked at: %w", dir, err)
	}
	for _, a := range allowed {
		root, err := filepath.EvalSymlinks(a)
		if err != nil {
			continue // not there on this host
		}
		if rel, err := filepath.Rel(root, at); err == nil && filepath.IsLocal(rel) {
			return at, nil
		}
	}
	return "", fmt.Errorf("the working directory %s is not one that tasks may have here: expected it in or below %s", dir, strings.Join(allowed, ", "))
}
