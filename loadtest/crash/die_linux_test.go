package crash

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the agent when the test process is killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
