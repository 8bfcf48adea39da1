package lab

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

// ExecOptions describe a command to run. Stdout and Stderr are written to concurrently: a
// writer for both must be safe for that, which a bytes.Buffer is not.
type ExecOptions struct {
	Namespace, Pod string
	// Container may be empty if the pod has one container.
	Container string
	Command   []string

	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY gives the command a terminal, which also gets its stderr. Resize, if any, yields
	// its sizes until it is closed.
	TTY    bool
	Resize <-chan TerminalSize
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize = remotecommand.TerminalSize

// ExitError means that a command ended with another code than 0.
type ExitError struct {
	Code int
}

func (e *ExitError) Error() string { return fmt.Sprintf("the command ended with exit code %d", e.Code) }

// Exec runs a command in a container and waits for its end, through the API server and the
// node's kubelet as kubectl does.
func (c *Client) Exec(ctx context.Context, options ExecOptions) error {
	request := c.CoreV1().RESTClient().Post().
		Resource("pods").Namespace(options.Namespace).Name(options.Pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: options.Container,
			Command:   options.Command,
			Stdin:     options.Stdin != nil,
			Stdout:    options.Stdout != nil,
			Stderr:    options.Stderr != nil && !options.TTY,
			TTY:       options.TTY,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config(), "GET", request.URL().String())
	if err != nil {
		return fmt.Errorf("running %q in pod %s/%s: %w", options.Command, options.Namespace, options.Pod, err)
	}
	stream := remotecommand.StreamOptions{Stdin: options.Stdin, Stdout: options.Stdout, Tty: options.TTY}
	if !options.TTY {
		stream.Stderr = options.Stderr
	}
	if options.Resize != nil {
		stream.TerminalSizeQueue = sizes(options.Resize)
	}
	err = executor.StreamWithContext(ctx, stream)
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		return &ExitError{Code: exit.Code}
	}
	if err != nil {
		return fmt.Errorf("running %q in pod %s/%s: %w", options.Command, options.Namespace, options.Pod, err)
	}
	return nil
}

// sizes implements remotecommand.TerminalSizeQueue.
type sizes <-chan TerminalSize

// Next waits for the next size; nil is the end.
func (s sizes) Next() *TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

// LogOptions choose a log.
type LogOptions struct {
	Namespace, Pod string
	// Container may be empty if the pod has one container.
	Container string
	// Follow continues until the container or the context ends.
	Follow bool
	// Previous is the log before the container's last restart.
	Previous bool
	// Tail is the number of last lines to begin with; all if nil or negative.
	Tail *int64
}

// Logs copies the log of a container.
func (c *Client) Logs(ctx context.Context, w io.Writer, options LogOptions) error {
	if options.Tail != nil && *options.Tail < 0 {
		options.Tail = nil
	}
	stream, err := c.CoreV1().Pods(options.Namespace).GetLogs(options.Pod, &corev1.PodLogOptions{
		Container: options.Container,
		Follow:    options.Follow,
		Previous:  options.Previous,
		TailLines: options.Tail,
	}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading the log of pod %s/%s: %w", options.Namespace, options.Pod, err)
	}
	defer stream.Close()
	if _, err := io.Copy(w, stream); err != nil {
		return fmt.Errorf("reading the log of pod %s/%s: %w", options.Namespace, options.Pod, err)
	}
	return nil
}
