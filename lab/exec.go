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

// ExecOptions say what to run where, and what it is connected to. What is nil is not
// connected. Stdout and Stderr are written to at the same time, each from a goroutine
// of its own: one writer for both must bear that. A bytes.Buffer does not, and loses
// output.
type ExecOptions struct {
	Namespace, Pod string
	// Container may be empty in a pod of one.
	Container string
	Command   []string

	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY gives the command a terminal, to which its stderr goes too. Resize, if
	// any, says the size of it, until it is closed.
	TTY    bool
	Resize <-chan TerminalSize
}

// TerminalSize is how many characters a terminal shows.
type TerminalSize = remotecommand.TerminalSize

// ExitError is the error of a command that ended with another code than 0.
type ExitError struct {
	Code int
}

func (e *ExitError) Error() string { return fmt.Sprintf("the command ended with exit code %d", e.Code) }

// Exec runs a command in a container and waits for its end. The way is the same as
// kubectl's: through the API server to the agent of the pod's node.
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
	executor, err := remotecommand.NewWebSocketExecutor(c.config, "GET", request.URL().String())
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

// sizes hands the sizes of a terminal on, as the executor asks for them.
type sizes <-chan TerminalSize

// Next waits for the next size; nil is the end.
func (s sizes) Next() *TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

// LogOptions say which log to read.
type LogOptions struct {
	Namespace, Pod string
	// Container may be empty in a pod of one.
	Container string
	// Follow goes on until the container ends or the context does.
	Follow bool
	// Previous is the log of the container before its last restart.
	Previous bool
	// Tail is how many lines to begin with from the end; nil or below 0 for all.
	Tail *int64
}

// Logs copies what a container printed.
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
