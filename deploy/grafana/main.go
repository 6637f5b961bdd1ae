// Command grafana writes the Grafana dashboards of gpupool beside itself:
//
//	cd deploy/grafana && go run .
//
// It is a module of its own, so that gpupool does not depend on Grafana's types.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	for _, d := range dashboards() {
		b, err := d.json()
		if err == nil {
			err = os.WriteFile(d.file, b, 0o644) //nolint:gosec // for everyone to read
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// json is the dashboard as Grafana imports it.
func (d board) json() ([]byte, error) {
	built, err := d.build().Build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.file, err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // queries are to be read
	e.SetIndent("", " ")
	err = e.Encode(built)
	return b.Bytes(), err
}
