package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The files are those that the code makes, and there are no others.
func TestUpToDate(t *testing.T) {
	var made []string
	for _, d := range dashboards() {
		want, err := d.json()
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, d.file)
		if got, err := os.ReadFile(d.file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes (%v): run go run . here and look at the difference", d.file, err)
		}
	}
	there, err := filepath.Glob("*.json")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(made)
	if !slices.Equal(made, there) {
		t.Errorf("there are %v, made are %v", there, made)
	}
}
