package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

// operationsPrelude gives the commands of the page what they need: a systemctl that
// starts and stops real servers, and words for the stories around them.
const operationsPrelude = `set -euo pipefail
systemctl() { # start, stop or restart UNIT
  local unit=$2 pid="$W/$2.pid"
  case $1 in
  restart) systemctl stop "$unit"; systemctl start "$unit" ;;
  stop)
    [ -e "$pid" ] || return 0
    kill "$(cat "$pid")"
    while kill -0 "$(cat "$pid")" 2>/dev/null; do sleep 0.02; done
    rm "$pid" ;;
  start)
    local port=$PORT args=()
    case $unit in
    gpupool-a) port=$PORT_A; args=(--journal "$JOURNAL") ;;
    gpupool-b) port=$PORT_B; args=(--journal "$JOURNAL") ;;
    esac
    setsid gpupool serve --config "$CONFIG" --listen "127.0.0.1:$port" "${args[@]}" >>"$W/$unit.log" 2>&1 </dev/null &
    echo $! >"$pid"
    for i in $(seq 500); do
      curl -s -o /dev/null -D - "http://127.0.0.1:$port/v1/whoami" 2>/dev/null | grep -q '^HTTP/1.1 401' && [ -e "$GPUPOOL_DATA/server.json" ] && return
      kill -0 "$(cat "$pid")" 2>/dev/null || { cat "$W/$unit.log"; return 1; }
      sleep 0.05
    done
    return 1 ;;
  esac
}
state() { set +x; until gpupool get "$1" >"$W/got" 2>&1 && grep -q "^state  *$2" "$W/got"; do sleep 0.05; done; cat "$W/got"; set -x; }
running() { state "$1" running; }
`

// stories are what happens before and after the commands of each section.
var stories = map[string]struct{ before, after string }{
	"Backup of one server": {
		"systemctl start gpupool; gpupool submit --gpus 1/7 -- sleep 300; running 1",
		"running 1",
	},
	"Restore of one server": {
		`systemctl start gpupool; gpupool submit --gpus 1/7 -- sleep 300; gpupool submit --hold --gpus 1/7 -- sleep 300; running 1
systemctl stop gpupool; gpupool journal export "$BACKUPS/gpupool.journal"; systemctl start gpupool
gpupool submit --gpus 1/7 -- sleep 300; running 3`,
		"state 1 failed; gpupool release 2; running 2; ! gpupool get 3",
	},
	"Upgrade of one server": {
		"systemctl start gpupool; gpupool submit --gpus 1/7 -- sleep 300; running 1",
		"running 1; gpupool journal verify \"$BACKUPS/before-upgrade.journal\"",
	},
	"From one server to several": {
		"systemctl start gpupool; gpupool submit --gpus 1/7 -- sleep 300; running 1",
		`running 1; [ "$(gpupool get 1 -o json | grep -c '"epoch": 1,')" = 1 ]; test ! -e "$GPUPOOL_DATA/journal.db"`,
	},
	"Backup of a shared journal": {
		"systemctl start gpupool-a; gpupool submit --gpus 1/7 -- sleep 300; running 1",
		"running 1",
	},
	"Restore of a shared journal": {
		`printf 'journal: {url: "%s"}\n' "$JOURNAL" >> "$CONFIG"
systemctl start gpupool; gpupool submit --gpus 1/7 -- sleep 300; gpupool submit --hold --gpus 1/7 -- sleep 300; running 1
gpupool journal export "$BACKUPS/shared.journal" "$JOURNAL"
gpupool submit --gpus 1/7 -- sleep 300; running 3; sleep 1.2
systemctl stop gpupool; redis-cli -p "$REDIS_PORT" flushall
! gpupool serve --config "$CONFIG" --listen 127.0.0.1:0 2> refused; grep -q 'has lost what was acknowledged' refused`,
		"state 1 failed; gpupool release 2; running 2; ! gpupool get 3",
	},
	"Failover": {
		"systemctl start gpupool-a; systemctl start gpupool-b; gpupool submit --gpus 1/7 -- sleep 300; running 1",
		`running 1; curl -s -o /dev/null -D - "$SERVER_A/healthz" | grep -i '^gpupool-role: follower'`,
	},
	"Upgrade of several servers": {
		"systemctl start gpupool-a; systemctl start gpupool-b; gpupool submit --gpus 1/7 -- sleep 300; running 1",
		"running 1; gpupool journal verify \"$BACKUPS/before-upgrade.journal\"",
	},
	"Older data": {
		`systemctl start gpupool; gpupool submit --gpus 1/7 -- sleep 300; running 1
systemctl stop gpupool; cp "$GPUPOOL_DATA/journal.db" older.db; systemctl start gpupool
gpupool submit --gpus 1/7 -- sleep 300; running 2; systemctl stop gpupool
cp older.db "$GPUPOOL_DATA/journal.db"
! gpupool serve --config "$CONFIG" --listen 127.0.0.1:0 2> refused; grep -q 'the journal is older than what ran here' refused`,
		"state 1 failed; ! gpupool get 2",
	},
	"A look inside": {
		"systemctl start gpupool; gpupool submit --gpus 1/7 -e SECRET=hidden -- true; gpupool wait 1 2>/dev/null || until gpupool get 1 | grep -q succeeded; do sleep 0.05; done; systemctl stop gpupool\n" +
			`gpupool journal inspect > facts; ! grep -q hidden facts`,
		`gpupool journal verify | grep ' 0 records after it'; systemctl start gpupool; gpupool get 1`,
	},
}

// TestOperations runs every command of docs/operations.md, against real servers and a real
// Redis.
func TestOperations(t *testing.T) {
	redistest.Need(t, "curl", "bash", "setsid")
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for section := range strings.SplitSeq(string(page), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		commands := shellOf(body)
		story, known := stories[title]
		if known != (commands != "") {
			t.Errorf("section %q has commands: %t, and a story here: %t", title, commands != "", known)
		}
		if !known {
			continue
		}
		seen++
		t.Run(title, func(t *testing.T) { operate(t, story.before, commands, story.after) })
	}
	if seen != len(stories) {
		t.Errorf("%d sections have a story, and the page has %d of them", len(stories), seen)
	}
}

// shellOf joins the blocks of commands in a section.
func shellOf(body string) string {
	var out strings.Builder
	in := false
	for line := range strings.Lines(body) {
		switch {
		case strings.HasPrefix(line, "```"):
			in = strings.TrimSpace(line) == "```sh"
		case in:
			out.WriteString(line)
		}
	}
	return out.String()
}

func operate(t *testing.T, before, commands, after string) {
	r := redistest.Start(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("server: {fake: 1xH100-80GB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "backups"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killAll(data); killAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	script := operationsPrelude + "\n# before\n" + before + "\n# the page\n" + commands + "\n# after\n" + after + "\n"
	cmd := exec.CommandContext(ctx, "bash", "-x", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	cmd.Dir = dir
	a, b := redistest.FreePort(t), redistest.FreePort(t)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"), "HOME="+dir, "W="+dir, "GPUPOOL_DATA="+data, "CONFIG="+config,
		"BACKUPS="+filepath.Join(dir, "backups"), "JOURNAL="+r.URL(), fmt.Sprint("REDIS_PORT=", r.Port), fmt.Sprint("PORT=", redistest.FreePort(t)),
		fmt.Sprint("PORT_A=", a), fmt.Sprint("PORT_B=", b), fmt.Sprint("SERVER_A=http://127.0.0.1:", a), fmt.Sprint("SERVER_B=http://127.0.0.1:", b))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
