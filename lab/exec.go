package lab

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// ExecOptions describe a command to run. Stdout and Stderr are written to concurrently: a
// writer for both must be safe for that, which a bytes.Buffer is not.
type ExecOptions struct {
	Namespace, Pod string
	// Container may be empty if the pod has one container.
	Container string
	Command   []string

	Stdout, Stderr io.Writer
}

// Exec runs a command in a container and waits for its end, through the API server and the
// node's kubelet as kubectl does.
func (c *Client) Exec(ctx context.Context, options ExecOptions) error {
	request := c.CoreV1().RESTClient().Post().
		Resource("pods").Namespace(options.Namespace).Name(options.Pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: options.Container,
			Command:   options.Command,
			Stdout:    options.Stdout != nil,
			Stderr:    options.Stderr != nil,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config(), "GET", request.URL().String())
	if err == nil {
		err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: options.Stdout, Stderr: options.Stderr})
	}
	if err != nil {
		return fmt.Errorf("running %q in pod %s/%s: %w", options.Command, options.Namespace, options.Pod, err)
	}
	return nil
}
