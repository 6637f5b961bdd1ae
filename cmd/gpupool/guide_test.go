package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestGuide runs every command of docs/guide-h100.md that needs no hardware (the blocks
// marked "console run") in order in one folder, beside a server with fake H100s, and
// compares what they answer with what the guide says. An ellipsis there stands for
// anything; a line of nothing else stands for any lines.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide-h100.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := guideSteps(string(guide))
	if len(steps) < 10 {
		t.Fatalf("only %d commands are found in the guide: are its blocks still marked?", len(steps))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s := &testServer{t: t, data: t.TempDir(), shape: "2xH100-80GB"}
	s.start()
	defer endTasks(s)
	s.up(ctx)

	home := t.TempDir()
	for name, script := range map[string]string{"sudo": `exec "$@"`, "gpupool_url": "echo http://" + s.addr, "tee": "exec cat"} { // tee: nothing outside is written
		if err := os.WriteFile(filepath.Join(home, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range steps {
		cmd := exec.CommandContext(ctx, "bash", "-c", step.command)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "GPUPOOL_DATA="+s.data, "GPUPOOL_TOKEN=", "GPUPOOL_SERVER=", "PATH="+home+":"+filepath.Dir(binary(t))+":"+os.Getenv("PATH"))
		said, err := cmd.CombinedOutput()
		if !matches(step.answer, string(said)) {
			t.Errorf("docs/guide-h100.md, line %d: %s (%v)\nthe guide says:\n%s\nit said:\n%s", step.line, step.command, err, step.answer, said)
		}
	}
}

// endTasks ends a server and what runs below it.
func endTasks(s *testServer) {
	s.end(syscall.SIGKILL)
	for _, p := range processes(s.data) {
		pid, _, _ := strings.Cut(p, " ")
		exec.Command("kill", "-KILL", pid).Run() //nolint:errcheck // gone already, then
	}
}

// guideStep is a command of the guide and what it should answer.
type guideStep struct {
	line            int
	command, answer string
}

func guideSteps(text string) (steps []guideStep) {
	inside := false
	for i, line := range strings.Split(text, "\n") {
		switch cmd, is := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console run"
		case inside && is:
			steps = append(steps, guideStep{line: i + 1, command: cmd})
		case inside:
			steps[len(steps)-1].answer += line + "\n"
		}
	}
	return steps
}

// matches compares an answer with what the guide says of it; spaces at the ends of lines
// and between columns do not count.
func matches(want, got string) bool {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		if line == "…" {
			b.WriteString(`(.*\n)?`)
			continue
		}
		parts := strings.Split(line, "…")
		for i, p := range parts {
			parts[i] = regexp.QuoteMeta(strings.Join(strings.Fields(p), " "))
		}
		b.WriteString(strings.Join(parts, `[^\n]*`) + `\n`)
	}
	b.WriteString(`\z`)
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	plain := strings.Join(lines, "\n")
	if plain != "" {
		plain += "\n"
	}
	return regexp.MustCompile(b.String()).MatchString(plain)
}
