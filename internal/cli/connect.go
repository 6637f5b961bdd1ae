package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/client"
)

// Names of files in the data folder that the server writes and clients on the same
// machine read.
const (
	// AdminTokenFile holds the admin token, readable by its owner only.
	AdminTokenFile = "admin.token"
	// ServerFile says where the server that uses the folder listens.
	ServerFile = "server.json"
)

// DefaultServer is where a server listens unless told otherwise.
const DefaultServer = "http://127.0.0.1:8470"

// ServerInfo is the content of ServerFile.
type ServerInfo struct {
	URL string `json:"url"`
	PID int    `json:"pid"`

	CA   string `json:"ca,omitempty"`   // file with the certificate that is served
	Name string `json:"name,omitempty"` // that it is made for
}

// DataDir is the data folder: the one given, $GPUPOOL_DATA, or a folder of the user.
func DataDir(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if d := os.Getenv("GPUPOOL_DATA"); d != "" {
		return d, nil
	}
	if d := os.Getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "gpupool"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no data folder: %w; give one with --data or in $GPUPOOL_DATA", err)
	}
	return filepath.Join(home, ".local", "share", "gpupool"), nil
}

// connect finds the server and a token.
func (a *App) connect(o ...client.Option) (*client.Client, error) {
	data, err := DataDir(a.flags.data)
	if err != nil {
		return nil, err
	}
	server, err := a.findServer(data)
	if err != nil {
		return nil, err
	}
	config, err := a.findTLS(server).Config()
	if err != nil {
		return nil, usage(err)
	}
	token := ""
	if len(config.Certificates) == 0 || a.flags.token != "" || a.flags.tokenFile != "" || os.Getenv("GPUPOOL_TOKEN") != "" {
		if token, err = a.findToken(data); err != nil {
			return nil, err
		}
	}
	c, err := client.New(server.URL, token, append(o, client.WithTrace(os.Getenv("TRACEPARENT")), client.WithTLS(config))...)
	if err != nil {
		return nil, usage(err)
	}
	return c, nil
}

// call runs a command that needs the server.
func (a *App) call(f func(ctx context.Context, api *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		api, err := a.connect()
		if err != nil {
			return err
		}
		return f(c.Context(), api, args)
	}
}

// onTask runs a command about the task that is its first argument.
func (a *App) onTask(f func(ctx context.Context, api *client.Client, id uint64) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		r, err := parseRef(args[0]) // before the server is asked for anything
		if err != nil {
			return err
		}
		return a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			id, err := r.find(ctx, api)
			if err != nil {
				return err
			}
			return f(ctx, api, id)
		})(c, args)
	}
}

// findServer says where the server is; of one that uses the data folder also what its
// certificate is like.
func (a *App) findServer(data string) (info ServerInfo, err error) {
	if a.flags.server != "" {
		return ServerInfo{URL: a.flags.server}, nil
	}
	if s := os.Getenv("GPUPOOL_SERVER"); s != "" {
		return ServerInfo{URL: s}, nil
	}
	b, err := os.ReadFile(filepath.Join(data, ServerFile))
	if err != nil {
		return ServerInfo{URL: DefaultServer}, nil //nolint:nilerr // no server ever used the folder: the default may still answer
	}
	if err := json.Unmarshal(b, &info); err != nil || info.URL == "" {
		return info, fmt.Errorf("%s does not say where the server listens: start it again, or give --server", filepath.Join(data, ServerFile))
	}
	return info, nil
}

// findTLS says whose certificates are trusted, and which is shown.
func (a *App) findTLS(server ServerInfo) client.TLS {
	t := client.TLS{CA: cmp.Or(a.flags.ca, os.Getenv("GPUPOOL_CA")), Cert: cmp.Or(a.flags.cert, os.Getenv("GPUPOOL_CERT")), Key: cmp.Or(a.flags.key, os.Getenv("GPUPOOL_KEY"))}
	if t.CA == "" {
		t.CA, t.Name = server.CA, server.Name
	}
	return t
}

func (a *App) findToken(data string) (string, error) {
	if a.flags.token != "" {
		return a.flags.token, nil
	}
	path := a.flags.tokenFile
	if path == "" {
		if t := os.Getenv("GPUPOOL_TOKEN"); t != "" {
			return t, nil
		}
		path = filepath.Join(data, AdminTokenFile)
	}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && a.flags.tokenFile == "":
		return "", fmt.Errorf("no token: neither --token, --token-file nor $GPUPOOL_TOKEN is set, and there is no %s: is gpupool serve running on this machine as this user?", path)
	case err != nil:
		return "", fmt.Errorf("the token cannot be read: %w", err)
	}
	t := strings.TrimSpace(string(b))
	if t == "" {
		return "", fmt.Errorf("%s is empty: expected a token in it", path)
	}
	return t, nil
}
