package agent

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/shape"
)

var (
	fakeNodes = flag.Int("fake-nodes", 200, "how many nodes without network to run")
	fakePods  = flag.Int("fake-pods", 2000, "how many pods to run on them")
)

// TestFakeNodes fills nodes without network with pods.
func TestFakeNodes(t *testing.T) {
	began := time.Now()
	l := live(t, shape.Options{Name: "test-fake", Zones: []string{"a"}, NodesPerZone: []int{0}, FakeNodes: *fakeNodes, Proxy: "none"})
	t.Logf("%d nodes are ready after %v", *fakeNodes, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	automount := false
	pods := l.client.CoreV1().Pods("default")
	l.eachFakePod(func(i int, name string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pod.Spec.NodeName = fmt.Sprintf("fake-%d", i%*fakeNodes+1)
		pod.Spec.AutomountServiceAccountToken = &automount
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "lab/echo"}}
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	t.Logf("%d pods are created after %v", *fakePods, time.Since(began).Round(time.Millisecond))
	addresses := map[string]bool{}
	l.wait("pods are ready", func(ctx context.Context) (bool, string) {
		list, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err.Error()
		}
		ready := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) {
				ready++
				addresses[list.Items[i].Status.PodIP] = true
			}
		}
		return ready == *fakePods, fmt.Sprint(ready)
	})
	t.Logf("and ready after %v", time.Since(began).Round(time.Millisecond))
	if len(addresses) != *fakePods {
		t.Errorf("%d pods have %d addresses", *fakePods, len(addresses))
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.agent.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "VmHWM") {
			t.Logf("the agent's memory: %s", strings.Join(strings.Fields(line), " "))
		}
	}
	// Not all by one request: on a machine that is busy it may take longer than the API
	// server lets it.
	l.eachFakePod(func(_ int, name string) error { return pods.Delete(t.Context(), name, metav1.DeleteOptions{}) })
	l.wait("pods are gone", func(ctx context.Context) (bool, string) {
		list, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && len(list.Items) == 0, fmt.Sprint(err)
	})
}

// eachFakePod does something to each pod, to many at a time.
func (l *lab) eachFakePod(do func(i int, name string) error) {
	indices := make(chan int)
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := range indices {
				if err := do(i, fmt.Sprintf("p-%d", i)); err != nil {
					l.t.Error(err)
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
