package cli

import (
	"bufio"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// envFlags are the flags of submit and run about what a task finds in its environment.
type envFlags struct {
	files   []string
	secrets []string
}

func (e *envFlags) register(c *cobra.Command) {
	c.Flags().StringArrayVar(&e.files, "env-file", nil, "file of environment KEY=VALUE, one a line; it is kept with the task, so not for what nobody may see")
	c.Flags().StringArrayVar(&e.secrets, "secret", nil, "environment from a secret of the tenant: VARIABLE=NAME, or NAME where it is the variable's too (gpupool secrets)")
}

// read puts files before the flags --env, which win over them.
func (e *envFlags) read(spec *apitype.TaskSpec) error {
	spec.Secrets = append(spec.Secrets, e.secrets...)
	var env []string
	for _, f := range e.files {
		lines, err := readEnvFile(f)
		if err != nil {
			return err
		}
		env = append(env, lines...)
	}
	spec.Env = append(env, spec.Env...)
	return nil
}

// readEnvFile reads lines KEY=VALUE. Values are taken as they stand, without quotes or
// escapes; empty lines and those that begin with # say nothing.
func readEnvFile(path string) (out []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("the environment file cannot be read: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, _, ok := strings.Cut(line, "="); !ok || name == "" { // the line may hold what nobody should see: not shown
			return nil, usagef("%s, line %d: expected KEY=VALUE", path, n)
		}
		out = append(out, line)
	}
	if err := lines.Err(); err != nil {
		return nil, usagef("the environment file cannot be read: %w", err)
	}
	return out, nil
}
