package nvidia

import (
	"os/exec"
	"syscall"
)

// apart keeps signals of the terminal from the helper: it ends with its input. A
// signal at the parent's death would follow the thread that started it, which in Go
// may end long before the process does.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
