package systemd

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

// Unit is what differs between the units of two machines.
type Unit struct {
	Binary string // of gpupool
	User   string // who runs it; empty: root, who alone can cut GPUs
	Data   string // folder of the journal
	Config string // settings
}

//go:embed gpupool.service
var unitText string

// userName is what systemd takes for a user: a name or a number.
var userName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]{0,31}|[0-9]{1,10})$`)

// Check says what is wrong with a unit before anything is written.
func (u Unit) Check() error {
	for what, path := range map[string]string{"the program": u.Binary, "the data folder": u.Data, "the configuration file": u.Config} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsAny(path, "\n\"\\$") {
			return fmt.Errorf("%s is %q: systemd needs a whole path from /, without quotes, backslashes and dollar signs", what, path)
		}
	}
	if u.User != "" && !userName.MatchString(u.User) {
		return fmt.Errorf("user %q is not a user's name", u.User)
	}
	return nil
}

// Text is the unit's file.
func (u Unit) Text() (string, error) {
	if err := u.Check(); err != nil {
		return "", err
	}
	if u.User == "root" || u.User == "0" {
		u.User = ""
	}
	t, err := template.New("unit").Funcs(template.FuncMap{"word": word}).Parse(unitText)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, u); err != nil {
		return "", err
	}
	return b.String(), nil
}

// StateDirectory is the data folder as systemd makes it, where it can: below /var/lib.
func (u Unit) StateDirectory() string {
	rel, below := strings.CutPrefix(u.Data, "/var/lib/")
	if !below || strings.Contains(rel, " ") {
		return ""
	}
	return strings.ReplaceAll(rel, "%", "%%")
}

// word is a path as one word of a command.
func word(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " '\t;") {
		return `"` + path + `"`
	}
	return path
}
