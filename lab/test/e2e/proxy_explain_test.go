package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// apiAddress is where a kubeconfig says that the API server is.
var apiAddress = regexp.MustCompile(`(?m)^(\s*server:) \S+$`)

// explainOn explains what a node does for the Service echo, in the node's network, and
// returns what it says with the exit code.
func (s *scene) explainOn(ctx context.Context, node shape.Node, folder string) (said string, code int, err error) {
	kubeconfig, err := os.ReadFile(s.cluster.Kubeconfig())
	if err != nil {
		return "", 0, err
	}
	api, err := s.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return "", 0, err
	}
	// The API server has another address for nodes.
	inside := filepath.Join(folder, "kubeconfig")
	text := apiAddress.ReplaceAll(kubeconfig, []byte("$1 https://"+api.Spec.ClusterIP))
	if err := os.WriteFile(inside, text, 0o600); err != nil {
		return "", 0, err
	}
	var output bytes.Buffer
	err = fabric.InNamespace(shape.NodeNamespace(s.cluster.Shape().Name, node.Index), func() error {
		cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "vicinity"), "explain", "svc/echo", "-n", s.namespace, "--node", node.Name, "--kubeconfig", inside)
		cmd.Stdout, cmd.Stderr = &output, &output
		err := cmd.Run()
		if cmd.ProcessState != nil {
			code = cmd.ProcessState.ExitCode()
		}
		if code == 1 {
			return nil
		}
		return err
	})
	return output.String(), code, err
}

// proxyExplained has every node explain what it does for a Service and compare that with
// its kernel: they agree, then differ after rules were removed while the proxy was paused,
// and agree again when it goes on.
func proxyExplained(ctx context.Context, s *scene) (string, error) {
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	if err := s.handOverEcho(ctx, ""); err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "explain-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	const right, wrong = "holds what it should", "kernel of the node, which differs:"
	expect := func(ctx context.Context, node shape.Node, code int, text string) error {
		return kube.Wait(ctx, fmt.Sprintf("explain on %s to end with %d", node.Name, code), func(ctx context.Context) (string, error) {
			said, got, err := s.explainOn(ctx, node, folder)
			if err != nil || got == code && strings.Contains(said, text) {
				return "", err
			}
			return fmt.Sprintf("it ends with %d: %s", got, said), nil
		})
	}
	nodes := s.cluster.Shape().Nodes()
	for _, node := range nodes {
		if err := expect(ctx, node, 0, right); err != nil {
			return "", err
		}
	}
	halted := nodes[0]
	if err := s.cluster.PauseComponent(ctx, "vicinity-proxy-"+halted.Name); err != nil {
		return "", err
	}
	service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err == nil {
		_, err = s.nft(ctx, halted, fmt.Sprintf("delete element ip vicinity services { %s . tcp . %d }", service.Spec.ClusterIP, service.Spec.Ports[0].Port))
	}
	if err == nil {
		err = expect(ctx, halted, 1, wrong)
	}
	if resumed := s.cluster.ResumeComponent(ctx, "vicinity-proxy-"+halted.Name); err == nil {
		err = resumed
	}
	if err != nil {
		return "", err
	}
	if err := expect(ctx, halted, 0, right); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nodes hold what they should; what was taken away from one is told, and mended", len(nodes)), nil
}
