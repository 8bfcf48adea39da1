package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"vicinity.dev/vicinity/lab/fabric"
)

// streams connects the streams of exec, attach and port forwarding with a pod. Its
// methods have the many parameters that the library of the streams asks for.
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
	// A nil stream in an interface would not be nil.
	if in != nil {
		c.in = in
	}
	if out != nil {
		c.out = out
	}
	if err != nil {
		c.err = err
	}
	if terminal {
		resizes := make(chan unix.Winsize)
		c.sizes = resizes
		done := make(chan struct{})
		defer close(done)
		go func() {
			defer close(resizes)
			for {
				select {
				case size, ok := <-sizes:
					if !ok {
						return
					}
					select {
					case resizes <- unix.Winsize{Row: size.Height, Col: size.Width}:
					case <-done:
						return
					}
				case <-done:
					return
				}
			}
		}()
	}
	return c.run(ctx)
}

// AttachContainer sends what a container prints from now on. It has no input: that is
// closed from the start.
func (s streams) AttachContainer(ctx context.Context, _, _, container string,
	_ io.Reader, out, err io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	a, failed := s.find(container)
	if failed != nil {
		return failed
	}
	streams := map[string]io.Writer{}
	if out != nil {
		streams["stdout"] = out
	}
	if err != nil {
		streams["stderr"] = err
	}
	results := make(chan error, len(streams))
	for name, to := range streams {
		stream := logStream{
			logOptions: logOptions{follow: true, limit: -1, stream: name},
			path:       s.worker.logPath(container, a.Number), to: to,
			ended: func() bool {
				now := s.worker.snap.get().current(container)
				return now == nil || now.Number != a.Number
			},
		}
		go func() { results <- stream.copy(ctx) }()
	}
	for range streams {
		failed = errors.Join(failed, <-results)
	}
	return failed
}

// PortForward connects a stream with a port on the pod's own address.
func (s streams) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	view := s.worker.snap.get()
	conn, err := fabric.Dial(ctx, s.worker.namespace(view.pod), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	results := make(chan error, 2)
	go func() {
		_, err := io.Copy(conn, stream)
		if half, ok := conn.(*net.TCPConn); ok {
			err = errors.Join(err, half.CloseWrite())
		}
		results <- err
	}()
	go func() {
		_, err := io.Copy(stream, conn)
		results <- err
	}()
	// The answer's end is the end: the asker may keep its side open.
	return <-results
}
