package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"vicinity.dev/vicinity/lab/fabric"
)

// Exec returns where to exec.
func (n *node) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := n.running(r.ContainerId); err != nil {
		return nil, err
	}
	return n.streaming.GetExec(r)
}

// Attach returns where to attach.
func (n *node) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if _, err := n.running(r.ContainerId); err != nil {
		return nil, err
	}
	return n.streaming.GetAttach(r)
}

// PortForward returns where to forward ports.
func (n *node) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if _, err := n.findSandbox(r.PodSandboxId); err != nil {
		return nil, err
	}
	return n.streaming.GetPortForward(r)
}

// running finds a container that runs.
func (n *node) running(id string) (*container, error) {
	c, err := n.findContainer(id)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, fmt.Errorf("container %q does not run", id)
	}
	return c, nil
}

// ExecSync runs a command in a container, and returns what it prints.
func (n *node) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	c, err := n.running(r.ContainerId)
	if err != nil {
		return nil, err
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Timeout)*time.Second)
		defer cancel()
	}
	var out, failed bytes.Buffer
	err = command{process: c.process, folder: c.folder, args: r.Cmd, out: &out, err: &failed}.run(ctx)
	answer := &runtimeapi.ExecSyncResponse{}
	var exit exitError
	switch {
	case errors.As(err, &exit):
		answer.ExitCode = int32(exit.code)
	case ctx.Err() != nil:
		// Others may still write to the buffers.
		return nil, status.Errorf(codes.DeadlineExceeded, "command timed out after %d s", r.Timeout)
	case err != nil:
		return nil, err
	}
	answer.Stdout, answer.Stderr = out.Bytes(), failed.Bytes()
	return answer, nil
}

// streams implements exec, attach and port forwarding. The signatures are those of the
// streaming library.
type streams struct{ node *node }

// Exec runs a command in a container.
func (s streams) Exec(ctx context.Context, id string, args []string, in io.Reader, out, err io.WriteCloser, terminal bool, sizes <-chan remotecommand.TerminalSize) error {
	container, failed := s.node.running(id)
	if failed != nil {
		return failed
	}
	c := command{process: container.process, folder: container.folder, args: args, terminal: terminal, sizes: sizes}
	// A nil stream must not become a non-nil interface.
	if in != nil {
		c.in = in
	}
	if out != nil {
		c.out = out
	}
	if err != nil {
		c.err = err
	}
	return c.run(ctx)
}

// Attach sends what a container prints from now on and, if the container has an input,
// writes to it.
func (s streams) Attach(ctx context.Context, id string, in io.Reader, out, err io.WriteCloser, _ bool, sizes <-chan remotecommand.TerminalSize) error {
	c, failed := s.node.running(id)
	if failed != nil {
		return failed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outputs := map[string]io.Writer{}
	if out != nil {
		outputs["stdout"] = out
	}
	if err != nil {
		outputs["stderr"] = err
	}
	// Follow the output before writing, so that no answer is missed.
	var seeing sync.WaitGroup
	seeing.Add(len(outputs))
	results := make(chan error, len(outputs))
	for name, to := range outputs {
		stream := logStream{
			path: onMachine(s.node.runtime.State, c.logPath()), to: to, stream: name, follow: true, ended: c.hasEnded, begun: seeing.Done,
		}
		go func() { results <- stream.copy(ctx) }()
	}
	seeing.Wait()
	if in != nil && c.input != 0 {
		input, failed := c.openInput()
		if failed != nil {
			return failed
		}
		defer input.Close()
		if c.Config.Tty {
			go resize(ctx, input, sizes)
		}
		go func() {
			_, _ = io.Copy(input, in)
			if c.Config.StdinOnce && !c.Config.Tty {
				_ = input.Close() // the last but the keeper's
				_ = c.keeper.signal(closeInput)
			}
		}()
	}
	for range outputs {
		failed = errors.Join(failed, <-results)
	}
	return failed
}

func (c *container) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// PortForward connects a stream with a port of the pod.
func (s streams) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	sandbox, err := s.node.findSandbox(id)
	if err != nil {
		return err
	}
	conn, err := fabric.Dial(ctx, s.node.namespaceOf(sandbox), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	// A client that is gone must not keep the connection open.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, stream)
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	}()
	// The end of the answer is the end: the client may have closed its side before, or
	// never.
	_, err = io.Copy(stream, conn)
	return err
}
