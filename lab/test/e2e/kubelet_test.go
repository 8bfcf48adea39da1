package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// run makes a pod of a specification in YAML, and waits until it is as wanted.
func (s *scene) run(ctx context.Context, name, spec string, met func(*corev1.Pod) bool) error {
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\nspec:\n  terminationGracePeriodSeconds: 0\n", name)
	for line := range strings.Lines(strings.TrimSpace(spec)) {
		manifest += "  " + line
	}
	if err := s.Apply(ctx, s.namespace, manifest); err != nil {
		return err
	}
	_, err := s.until(ctx, name, met)
	return err
}

// until waits until a pod is as wanted.
func (s *scene) until(ctx context.Context, name string, met func(*corev1.Pod) bool) (pod *corev1.Pod, err error) {
	err = kube.Wait(ctx, "pod "+name+" to be as wanted", func(ctx context.Context) (string, error) {
		var err error
		if pod, err = s.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return "", err
		}
		if met(pod) {
			return "", nil
		}
		return fmt.Sprintf("its phase is %s, its containers are %+v", pod.Status.Phase, pod.Status.ContainerStatuses), nil
	})
	return pod, err
}

// containers are those of the echo pods and the clients, with what a restart changes.
func (s *scene) containers(ctx context.Context) ([]string, error) {
	pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app in (echo, client)"})
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s %s %s %d", pods.Items[i].Name, pods.Items[i].UID, c.ContainerID, c.RestartCount))
		}
	}
	slices.Sort(all)
	return all, nil
}

// runtimeKilled kills the runtime and the kubelet of a node under load: they find their pods again, and run new ones.
func runtimeKilled(ctx context.Context, s *scene) (string, error) {
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	before, err := s.containers(ctx)
	if err != nil {
		return "", err
	}
	node := s.inhabited()[0].Nodes[0].Name
	result, err := s.during(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200}}, func(ctx context.Context) error {
		for _, change := range []func(context.Context, string) error{s.cluster.KillComponent, s.cluster.StartComponent} {
			for _, component := range []string{"runtime", "kubelet-" + node} {
				if err := change(ctx, component); err != nil {
					return err
				}
			}
		}
		if err := s.run(ctx, "later", "nodeName: "+node+"\ncontainers: [{name: sleep, image: lab/sleep}]", kube.PodReady); err != nil {
			return fmt.Errorf("after they started again: %w", err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	after, err := s.containers(ctx)
	if err != nil {
		return "", err
	}
	if !slices.Equal(before, after) {
		return "", fmt.Errorf("pods were restarted: before %q, after %q", before, after)
	}
	return fmt.Sprintf("%d pods found again by the runtime and a kubelet that were killed, none restarted; %d requests during it, 0 failed", len(before), result.Answered), nil
}
