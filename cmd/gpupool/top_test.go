package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// terminal is a program in a terminal, and what its screen shows.
type terminal struct {
	t      *testing.T
	pty    *os.File
	screen *vt.SafeEmulator
	done   chan error
}

func inTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, pty: f, screen: vt.NewSafeEmulator(80, 24), done: make(chan error, 1)}
	go io.Copy(f, x.screen) //nolint:errcheck // its answers to what the program asks; left over at the end, as closing the screen would race with it
	go func() {
		io.Copy(x.screen, f) //nolint:errcheck // the end of a terminal is an error
		x.done <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // gone already, then
		f.Close()          //nolint:errcheck // only read
	})
	return x
}

// shows waits until the screen shows all that is wanted at once.
func (x *terminal) shows(want ...string) {
	x.t.Helper()
	text, missing := "", ""
	for range 1500 { // some seconds may pass between two looks
		text, missing = ansi.Strip(x.screen.Render()), ""
		for _, w := range want {
			if !strings.Contains(text, w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	x.t.Fatalf("the terminal does not show %q:\n%s", missing, text)
}

// keys types, then waits likewise.
func (x *terminal) keys(keys string, want ...string) {
	x.t.Helper()
	if _, err := x.pty.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
	x.shows(want...)
}

// size makes the terminal another size.
func (x *terminal) size(rows, cols uint16) {
	x.t.Helper()
	x.screen.Resize(int(cols), int(rows))
	if err := pty.Setsize(x.pty, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		x.t.Fatal(err)
	}
}

// TestTop watches a real server in a real terminal: what happens is seen, a task is
// looked into and cancelled, the server goes away and comes back.
func TestTop(t *testing.T) {
	s := &testServer{t: t, data: t.TempDir(), shape: "2xH100-80GB"}
	s.start()
	t.Cleanup(func() { s.end(syscall.SIGTERM) })
	api := s.up(t.Context())
	cmd := exec.Command(binary(t), "top", "--data", s.data)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	x := inTerminal(t, cmd)

	x.shows("[3 Tasks]", "no tasks here", "? help  q quit")
	spec := apitype.TaskSpec{Name: "notebook", GPUs: "1/7", Command: []string{"sh", "-c", "echo hello from $GPUPOOL_TASK; exec sleep 1000"}}
	if _, err := api.Submit(t.Context(), spec, ""); err != nil {
		t.Fatal(err)
	}
	x.shows("> 1     default  notebook  1/7 GPU  running", "1 running")
	x.keys("2", "fake-0001", "[······a·]", "a=default/1 1g.10gb")
	x.keys("5", "submitted as notebook", "is running")
	x.keys("3", "[3 Tasks]")
	x.keys("\r", "task 1 of default (running)", "What happened", "gets 1g.10gb")
	x.keys("G", "hello from 1")
	x.keys("\x1b", "AGE")
	x.keys("c", "cancel task 1 of default (notebook)? y/n")
	x.keys("y", "task 1 is being ended", "0 running")
	if got, err := api.WaitTask(t.Context(), 1, time.Minute); err != nil || got.State != "cancelled" {
		t.Errorf("after y the task is %s, %v", got.State, err)
	}

	s.end(syscall.SIGTERM)
	x.shows("NOT CONNECTED", "trying again", "cannot reach gpupool")
	s.start()
	s.up(t.Context())
	x.shows("connected again")
	x.size(30, 120)
	x.shows("gpupool "+s.addr+" (admin)", "0 waiting")
	x.keys("1", "[1 Pools]", "dynamic")
	x.keys("q")
	if err := <-x.done; err != nil {
		t.Errorf("q: %v", err)
	}
}
