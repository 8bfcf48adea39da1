package console

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// update writes an object of Vicinity's API.
func (w *world) update(t testing.TB, plural string, object interface {
	metav1.Object
	runtime.Object
},
) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetResourceVersion("1000")
	resource := w.dynamic.Resource(v1alpha1.GroupVersion.WithResource(plural)).Namespace(object.GetNamespace())
	if _, err := resource.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// listen subscribes to changes of parts.
func (w *world) listen(t *testing.T, query string) <-chan string {
	t.Helper()
	answer := w.raw(t, http.MethodGet, "/events?"+query, nil)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %v", answer.Status, answer.Header)
	}
	heard := make(chan string, 100)
	go func() {
		defer close(heard)
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			if event, found := strings.CutPrefix(lines.Text(), "event: "); found {
				heard <- event
			}
		}
	}()
	return heard
}

func hears(t *testing.T, heard <-chan string, within time.Duration) bool {
	t.Helper()
	select {
	case <-heard:
		return true
	case <-time.After(within):
		return false
	}
}

// Browsers are notified of the parts that they show, and of no others.
func TestEvents(t *testing.T) {
	w := newWorld(t, aCluster()...)
	w.start(t)
	web, plain, list := w.listen(t, "part=service:shop/web"), w.listen(t, "part=service:shop/plain"), w.listen(t, "part=services&part=disruption")
	for _, heard := range []<-chan string{web, plain, list} {
		if !hears(t, heard, 10*time.Second) {
			t.Fatal("a new listener gets no first notification")
		}
	}
	// The first list may arrive late.
	for _, heard := range []<-chan string{web, plain, list} {
		for hears(t, heard, 2*eventsApart) {
			continue
		}
	}
	service, err := w.typed.CoreV1().Services("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service.Annotations, service.ResourceVersion = map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Require}, "1000"
	if _, err := w.typed.CoreV1().Services("shop").Update(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !hears(t, web, 10*time.Second) || !hears(t, list, 10*time.Second) {
		t.Error("a page of the Service is not notified of its change")
	}
	if hears(t, plain, 2*eventsApart) {
		t.Error("a page of another Service is notified of the change")
	}
	holds(t, w.get(t, "/services/shop/web", 200), "same-zone: Require")

	node, err := w.typed.CoreV1().Nodes().Get(t.Context(), "a-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable, node.ResourceVersion = true, "1001"
	if _, err := w.typed.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !hears(t, plain, 10*time.Second) {
		t.Error("a Service is not notified of a change of nodes")
	}
	w.eventually(t, "the node is cordoned", func() bool { return strings.Contains(w.get(t, "/cluster", 200), "cordoned</span>") })
}

// At most mostListeners pages listen at a time, and a page that closes frees its place.
func TestListenersAreLimited(t *testing.T) {
	w := newWorld(t).start(t)
	for range mostListeners - 1 {
		if _, found := w.listeners.add([]part{partCluster}); !found {
			t.Fatal("there is no place")
		}
	}
	last := w.raw(t, http.MethodGet, "/events?part=cluster", nil)
	w.eventually(t, "the last place is taken", func() bool {
		w.listeners.mu.Lock()
		defer w.listeners.mu.Unlock()
		return len(w.listeners.all) == mostListeners
	})
	holds(t, w.get(t, "/events?part=cluster", 503), "100 pages are open")
	if err := last.Body.Close(); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the place of a page that is closed is free", func() bool {
		one, found := w.listeners.add([]part{partCluster})
		if found {
			w.listeners.remove(one)
		}
		return found
	})
}
