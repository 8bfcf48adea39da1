package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"vicinity.dev/vicinity/lab/fabric"
)

// Exec returns the URL at which the streaming server runs a command.
func (n *node) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := n.running(r.ContainerId); err != nil {
		return nil, err
	}
	return n.streaming.GetExec(r)
}

// PortForward returns the URL at which the streaming server forwards ports.
func (n *node) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if _, err := n.findSandbox(r.PodSandboxId); err != nil {
		return nil, err
	}
	return n.streaming.GetPortForward(r)
}

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
		// The buffers cannot be read: processes may still write to them.
		return nil, status.Errorf(codes.DeadlineExceeded, "command timed out after %d s", r.Timeout)
	case err != nil:
		return nil, err
	}
	answer.Stdout, answer.Stderr = out.Bytes(), failed.Bytes()
	return answer, nil
}

// streams implements the streaming library's interface for exec, attach and port forwarding.
type streams struct{ node *node }

// Exec runs a command in a container.
func (s streams) Exec(ctx context.Context, id string, args []string, in io.Reader, out, err io.WriteCloser, terminal bool, _ <-chan remotecommand.TerminalSize) error {
	if terminal {
		return errors.New("containers of a lab have no terminals; use kubectl exec without -t")
	}
	container, failed := s.node.running(id)
	if failed != nil {
		return failed
	}
	c := command{process: container.process, folder: container.folder, args: args}
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

// Attach always fails: nothing keeps the input of containers open.
func (s streams) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errors.New("containers of a lab cannot be attached to; use kubectl exec and kubectl logs")
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
	// The connection must not outlive the client.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, stream)
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	}()
	// Only the end of the answer counts: the client may have closed its side before, or never.
	_, err = io.Copy(stream, conn)
	return err
}
