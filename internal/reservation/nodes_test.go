package reservation

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const rack = "example.com/rack"

func inRack(name, of string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rack: of}}}
}

// racks is a server with a budget of one pod in each rack, and a replica that knows the nodes old-1
// and old-2 of the racks 1 and 2. There are three pods in rack 1, of which the first is on the node
// new, and one in rack 2.
func racks(t *testing.T, nodes ...client.Object) (s *server, r *replica, pods []*corev1.Pod) {
	t.Helper()
	budget := aBudget("web", 1)
	budget.Spec.NodeSelectorTerm.MatchExpressions[0].Key = rack
	objects := append([]client.Object{budget}, nodes...)
	for i, node := range []string{"new", "old-1", "old-1", "old-2"} {
		pod := aPod(i, 10+i)
		pod.Spec.NodeName = node
		pods, objects = append(pods, pod), append(objects, pod)
	}
	s = newServer(t, objects...)
	r = s.replica()
	r.world.nodes = func() map[string]*corev1.Node {
		return map[string]*corev1.Node{"old-1": inRack("old-1", "1"), "old-2": inRack("old-2", "2")}
	}
	r.sees(s.budget("web"))
	for _, pod := range pods {
		r.sees(pod)
	}
	return s, r, pods
}

// The pods of a node that is newer than the cache are in its domain, for whichever pod is decided.
func TestNodeThatIsNewerThanTheCache(t *testing.T) {
	for _, first := range []int{0, 1} {
		s, r, pods := racks(t, inRack("new", "1"))
		r.want(pods[first], "x", true)
		r.want(pods[1-first], "y", false)
		r.want(pods[3], "z", true)
		if got := len(s.reservations()); got != 2 {
			t.Errorf("%d reservations", got)
		}
	}
}

// Where it cannot be told whether a node is new or was deleted nothing is admitted, until it can.
func TestNodeThatCannotBeRead(t *testing.T) {
	s, r, pods := racks(t, inRack("new", "1"))
	s.onGet(func(object client.Object, read func() error) error {
		if _, ok := object.(*corev1.Node); ok {
			return errLost
		}
		return read()
	})
	for _, pod := range pods {
		if answer, err := r.ask(pod, "x"); !errors.Is(err, errLost) || !strings.Contains(err.Error(), "node new has pods of the budget, and is not known") {
			t.Errorf("%s: %q, %v", pod.Name, answer, err)
		}
	}
	if answer, err := r.Admit(t.Context(), Request{Pod: pods[0], Holder: "x", DryRun: true}); !errors.Is(err, errLost) {
		t.Errorf("a dry run: %+v, %v", answer, err)
	}
	s.wantReservations()
	s.onGet(nil)
	r.want(pods[0], "x", true)
}

// The pods of a node that was deleted are not held, though nothing says that they are not ready.
// They count as missing for the others, and the node is not asked for with each decision.
func TestNodeThatWasDeleted(t *testing.T) {
	s, r, pods := racks(t)
	reads := 0
	s.onGet(func(object client.Object, read func() error) error {
		if _, ok := object.(*corev1.Node); ok {
			reads++
		}
		return read()
	})
	for range 3 {
		if _, err := r.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 1 {
		t.Errorf("the node was read %d times", reads)
	}
	r.want(pods[0], "x", true)
	s.wantReservations("web-0 by x")
}

// One that is back by then is: its pods may serve.
func TestNodeThatIsBackByNow(t *testing.T) {
	s, r, pods := racks(t)
	if _, err := r.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none); err != nil {
		t.Fatal(err)
	}
	s.must(s.Create(t.Context(), inRack("new", "1")))
	if answer, err := r.ask(pods[0], "x"); !errors.Is(err, errReadyByNow) {
		t.Errorf("%q, %v", answer, err)
	}
	s.clock.SetTime(start.Add(nodeTrust))
	r.want(pods[0], "x", true)
	r.want(pods[1], "y", false)
}
