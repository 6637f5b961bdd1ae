package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// Unmarshal reads YAML or JSON into v and refuses what v does not know, with its
// line; name is the file's, for errors.
func Unmarshal(name string, b []byte, v any) (err error) {
	// The library has panics for some malformed input (FuzzTaskFile found one:
	// a tag where a list belongs). Input of users must never end the program.
	defer func() {
		if r := recover(); r != nil {
			err = &Error{fmt.Sprintf("%s: this is not YAML that can be read (%v): look for stray tags (!), anchors (&) and unbalanced brackets", name, r)}
		}
	}()
	if err := yaml.UnmarshalWithOptions(b, v, yaml.Strict()); err != nil {
		return &Error{fmt.Sprintf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))}
	}
	return nil
}
