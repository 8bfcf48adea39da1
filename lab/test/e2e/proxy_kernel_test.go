package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// nft runs the program nft in the network of a node.
func (s *scene) nft(ctx context.Context, node shape.Node, args ...string) (string, error) {
	var output []byte
	err := fabric.InNamespace(shape.NodeNamespace(s.cluster.Shape().Name, node.Index), func() (err error) {
		cmd := exec.CommandContext(ctx, "nft", args...)
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		if output, err = cmd.Output(); err != nil {
			return fmt.Errorf("nft %s on %s: %w: %s", strings.Join(args, " "), node.Name, err, &complaint)
		}
		return nil
	})
	return string(output), err
}

// onlyIn waits until the cluster IP of a Service is in the rules of one proxy, by the
// name of its tables, and not in those of the other, on every node.
func (s *scene) onlyIn(ctx context.Context, service, table string) error {
	object, err := s.CoreV1().Services(s.namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return err
	}
	nodes := s.cluster.Shape().Nodes()
	return kube.Wait(ctx, fmt.Sprintf("Service %s to be in the rules of %s alone", service, table), func(ctx context.Context) (string, error) {
		for _, node := range nodes {
			for _, address := range object.Spec.ClusterIPs {
				family := "ip"
				if strings.Contains(address, ":") {
					family = "ip6"
				}
				for _, candidate := range []string{"kube-proxy", "vicinity"} {
					text, err := s.nft(ctx, node, "list", "table", family, candidate)
					if err != nil {
						return "", err
					}
					if has := slices.Contains(strings.FieldsFunc(text, notOfAddress), address); has != (candidate == table) {
						return fmt.Sprintf("%s of the rules of %s on %s has %s: %t", family, candidate, node.Name, address, has), nil
					}
				}
			}
		}
		return "", nil
	})
}

// notOfAddress reports whether a character is none of an IP address.
func notOfAddress(r rune) bool {
	return r != '.' && r != ':' && (r < '0' || r > '9') && (r < 'a' || r > 'f')
}

// groupsOf are the groups of a Service.
func (s *scene) groupsOf(ctx context.Context, service string) ([]v1alpha1.EndpointGroup, error) {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(v1alpha1.GroupVersion.WithResource("endpointgroups")).Namespace(s.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelService + "=" + service})
	if err != nil {
		return nil, err
	}
	groups := make([]v1alpha1.EndpointGroup, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &groups[i]); err != nil {
			return nil, err
		}
	}
	return groups, nil
}
