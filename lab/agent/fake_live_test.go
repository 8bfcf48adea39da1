package agent_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/test/rig"
)

var (
	fakeNodes = flag.Int("fake-nodes", 200, "how many nodes without network to run")
	fakePods  = flag.Int("fake-pods", 2000, "how many pods to run on them")
)

// TestFakeNodes fills nodes without network with pods.
func TestFakeNodes(t *testing.T) {
	began := time.Now()
	l := rig.Start(t, rig.Shape{Name: "test-fake", Zones: []string{"a"}, FakeNodes: *fakeNodes})
	t.Logf("%d nodes are ready after %v", *fakeNodes, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	automount := false
	pods := l.CoreV1().Pods("default")
	eachFakePod(t, func(i int, name string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pod.Spec.NodeName = fmt.Sprintf("fake-%d", i%*fakeNodes+1)
		pod.Spec.AutomountServiceAccountToken = &automount
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "lab/echo"}}
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	t.Logf("%d pods are created after %v", *fakePods, time.Since(began).Round(time.Millisecond))
	addresses := map[string]bool{}
	l.Await("pods are ready", func(ctx context.Context) (string, error) {
		list, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return "", err
		}
		ready := 0
		for i := range list.Items {
			if kube.PodReady(&list.Items[i]) {
				ready++
				addresses[list.Items[i].Status.PodIP] = true
			}
		}
		return missing(ready, *fakePods), nil
	})
	t.Logf("and ready after %v", time.Since(began).Round(time.Millisecond))
	if len(addresses) != *fakePods {
		t.Errorf("%d pods have %d addresses", *fakePods, len(addresses))
	}
	// Not all by one request: on a machine that is busy it may take longer than the API
	// server lets it.
	eachFakePod(t, func(_ int, name string) error { return pods.Delete(t.Context(), name, metav1.DeleteOptions{}) })
	l.Await("pods are gone", func(ctx context.Context) (string, error) {
		list, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return "", err
		}
		return missing(-len(list.Items), 0), nil
	})
}

// eachFakePod does something to each pod, to many at a time.
func eachFakePod(t *testing.T, do func(i int, name string) error) {
	indices := make(chan int)
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := range indices {
				if err := do(i, fmt.Sprintf("p-%d", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range *fakePods {
		indices <- i
	}
	close(indices)
	work.Wait()
}

// missing tells how many there are if they are not as many as wanted.
func missing(have, want int) string {
	if have == want {
		return ""
	}
	return fmt.Sprintf("there are %d, not %d", max(have, -have), want)
}
