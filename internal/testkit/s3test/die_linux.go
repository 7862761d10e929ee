package s3test

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the server when the test process is killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
