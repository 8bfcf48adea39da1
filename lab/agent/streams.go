package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"vicinity.dev/vicinity/lab/fabric"
)

// streams implements exec, attach and port forwarding for a pod. The signatures are those
// of the streaming library.
type streams struct{ worker *worker }

func (s streams) find(container string) (*attempt, error) {
	view := s.worker.snap.get()
	if a := view.current(container); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("container not found (%q)", container)
}

// ExecInContainer runs a command in a container.
func (s streams) ExecInContainer(ctx context.Context, _, _, container string, args []string,
	in io.Reader, out, err io.WriteCloser, terminal bool, sizes <-chan remotecommand.TerminalSize, timeout time.Duration,
) error {
	a, failed := s.find(container)
	if failed != nil {
		return failed
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c := command{process: a.Process, folder: s.worker.attemptFolder(container, a.Number), args: args, terminal: terminal}
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
	c.sizes = sizes
	return c.run(ctx)
}

// AttachContainer sends what a container prints from now on and, if the container has an
// input, writes to it.
func (s streams) AttachContainer(ctx context.Context, _, _, container string,
	in io.Reader, out, err io.WriteCloser, _ bool, sizes <-chan remotecommand.TerminalSize,
) error {
	a, failed := s.find(container)
	if failed != nil {
		return failed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streams := map[string]io.Writer{}
	if out != nil {
		streams["stdout"] = out
	}
	if err != nil {
		streams["stderr"] = err
	}
	// Follow the output before writing, so that no answer is missed.
	var seeing sync.WaitGroup
	seeing.Add(len(streams))
	results := make(chan error, len(streams))
	for name, to := range streams {
		stream := logStream{
			logOptions: logOptions{follow: true, limit: -1, stream: name},
			path:       s.worker.logPath(container, a.Number), to: to,
			ended: func() bool {
				now := s.worker.snap.get().current(container)
				return now == nil || now.Number != a.Number
			},
			begun: seeing.Done,
		}
		go func() { results <- stream.copy(ctx) }()
	}
	seeing.Wait()
	if in != nil && a.Input != 0 {
		input, failed := a.openInput()
		if failed != nil {
			return failed
		}
		defer input.Close()
		spec := findContainer(s.worker.snap.get().pod, container)
		if spec.TTY {
			go resize(ctx, input, sizes)
		}
		go func() {
			_, _ = io.Copy(input, in)
			if spec.StdinOnce && !spec.TTY {
				_ = input.Close() // the last but the keeper's
				_ = a.Keeper.signal(closeInput)
			}
		}()
	}
	for range streams {
		failed = errors.Join(failed, <-results)
	}
	return failed
}

// PortForward connects a stream with a port of the pod.
func (s streams) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	view := s.worker.snap.get()
	conn, err := fabric.Dial(ctx, s.worker.namespace(view.pod), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
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
