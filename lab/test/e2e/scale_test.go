package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// soaking reports whether promises run in their long forms, at full scale, as by "make
// soak".
func soaking() bool { return os.Getenv("E2E_SOAK") != "" }

// inMakeTest reports whether only the promises of "make test" run.
func inMakeTest() bool { return os.Getenv("E2E_TIER") == string(inTest) }

// scale brings up a lab with many nodes that have no network, and as many pods as the
// project promises to bear.
func scale(ctx context.Context, s *scene) (figure string, err error) {
	nodes, deployments, each := 200, 2, 250
	if soaking() {
		nodes, deployments, each = 5000, 10, 5000
	}
	wanted, err := shape.FromOptions(shape.Options{
		Name: fmt.Sprintf("scale-%d", os.Getpid()), ControlPlaneOnly: true, FakeNodes: nodes,
	})
	if err != nil {
		return "", err
	}
	begun := time.Now()
	cluster, err := lab.Up(ctx, wanted, s.options)
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, lab.Down(context.WithoutCancel(ctx), wanted.Name, s.options))
	}()
	up := time.Since(begun)
	client, err := cluster.Client()
	if err != nil {
		return "", err
	}
	begun = time.Now()
	if err := client.Apply(ctx, metav1.NamespaceDefault, crowds(deployments, each)); err != nil {
		return "", err
	}
	ready := func(ctx context.Context) (string, error) {
		list, err := client.AppsV1().Deployments(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		return missingPods(list.Items, deployments*each), nil
	}
	if err := kube.Wait(ctx, "all pods to be ready", ready); err != nil {
		return "", err
	}
	took := time.Since(begun)
	status, err := cluster.Status(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nodes ready after %.0f s, %d pods after another %.0f s, %d MiB in all",
		nodes, up.Seconds(), deployments*each, took.Seconds(), status.Memory>>20), nil
}

// missingPods says how many pods are not ready, or nothing.
func missingPods(deployments []appsv1.Deployment, want int) string {
	var there, ready int
	for _, d := range deployments {
		there += int(d.Status.Replicas)
		ready += int(d.Status.ReadyReplicas)
	}
	if ready == want {
		return ""
	}
	return fmt.Sprintf("of %d pods %d are there, %d ready", want, there, ready)
}

// crowds are Deployments on the nodes without network.
func crowds(deployments, replicas int) string {
	var b strings.Builder
	for i := range deployments {
		fmt.Fprintf(&b, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd-%[1]d}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: crowd-%[1]d}}
  template:
    metadata: {labels: {app: crowd-%[1]d}}
    spec:
      nodeSelector: {%[3]s: "true"}
      containers: [{name: sleep, image: lab/sleep}]
`, i, replicas, shape.LabelFake)
	}
	return b.String()
}
