package reservation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/disruption/coverage"
)

const rack = "example.com/rack"

func inRack(name, of string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rack: of}}}
}

// racks is a server with a budget of one pod in each rack, and a replica that knows the nodes old-1 and old-2 of the racks 1 and 2. Rack
// 1 has three pods, the first on the node new. Rack 2 has one pod.
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
	r.world.nodes.gather = func(string) map[string]*corev1.Node {
		return map[string]*corev1.Node{"old-1": inRack("old-1", "1"), "old-2": inRack("old-2", "2")}
	}
	r.sees(s.budget("web"))
	for _, pod := range pods {
		r.sees(pod)
	}
	return s, r, pods
}

// The pods of a node that is newer than the cache count in its domain, whichever pod is decided.
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

// While it is unknown whether a node is new or deleted, nothing is admitted.
func TestNodeThatCannotBeRead(t *testing.T) {
	s, r, pods := racks(t, inRack("new", "1"))
	s.onGet(func(object client.Object, read func() error) error {
		if _, ok := object.(*corev1.Node); ok {
			return errLost
		}
		return read()
	})
	for _, pod := range pods {
		if answer, err := r.ask(pod, "x"); !errors.Is(err, errLost) || !strings.Contains(err.Error(), "node new has pods of the budget, but vicinity-controller has not seen it") {
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

// The pods of a deleted node are not protected, even if their conditions say ready. They count as missing for the others, and the node
// is not read for each decision.
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

// A node that exists again counts: its pods may serve.
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

// A node that changes its domain takes its pods with it, including reserved ones.
func TestNodeThatGetsAnotherDomain(t *testing.T) {
	s, r, pods := racks(t)
	of := map[string]string{"new": "1", "old-1": "1", "old-2": "2"}
	r.world.nodes.gather = func(string) map[string]*corev1.Node {
		nodes := map[string]*corev1.Node{}
		for name, rack := range of {
			nodes[name] = inRack(name, rack)
		}
		return nodes
	}
	r.want(pods[1], "x", true)
	of["old-2"] = "1" // where the reservation is
	r.world.nodes.forget(inRack("old-2", "1"))
	r.want(pods[3], "y", false)
	of["old-1"] = "3" // with its reservation
	r.world.nodes.forget(inRack("old-1", "3"))
	r.want(pods[2], "y", false)
	r.want(pods[3], "y", true)
	r.want(pods[0], "z", false)
	s.wantReservations("web-1 by x", "web-3 by y")
}

// scaled serves subresources scale by a function.
type scaled struct {
	client.SubResourceClient
	asked int
	get   func(*autoscalingv1.Scale) error
}

func (s *scaled) SubResource(string) client.SubResourceClient { return s }

func (s *scaled) Get(_ context.Context, owner client.Object, scale client.Object, _ ...client.SubResourceGetOption) error {
	s.asked++
	if named := owner.(*unstructured.Unstructured); named.GetKind() != "Cache" || named.GetNamespace() != shop || named.GetName() != "db" {
		return errors.New("another object")
	}
	into, ok := scale.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the client does not read a %T of an object of any kind", scale)
	}
	var known autoscalingv1.Scale
	if err := s.get(&known); err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&known)
	into.Object = object
	return err
}

func TestScales(t *testing.T) {
	ref := coverage.Ref{APIVersion: "example.com/v1", Kind: "Cache", Name: "db", UID: "u"}
	resource := schema.GroupResource{Group: "example.com", Resource: "caches"}
	for name, test := range map[string]struct {
		uid  types.UID
		err  error
		want coverage.Workload
		fail bool
	}{
		"so many":       {"u", nil, coverage.OfScale(ref, 7), false},
		"another owner": {"other", nil, coverage.WithoutScale(ref), false},
		"no owner":      {"", apierrors.NewNotFound(resource, "db"), coverage.WithoutScale(ref), false},
		"no kind":       {"", &meta.NoKindMatchError{}, coverage.WithoutScale(ref), false},
		"no right":      {"", apierrors.NewForbidden(resource, "db", nil), coverage.Workload{}, true},
		"no answer":     {"", errLost, coverage.Workload{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t)
			of := &scaled{get: func(scale *autoscalingv1.Scale) error {
				scale.UID, scale.Spec.Replicas = test.uid, 7
				return test.err
			}}
			s := newScales(of, server.clock)
			for range 2 {
				if got, err := s.of(t.Context(), shop, ref); !reflect.DeepEqual(got, test.want) || (err != nil) != test.fail {
					t.Errorf("%+v, %v", got, err)
				}
			}
			server.clock.SetTime(start.Add(scaleTrust))
			_, _ = s.of(t.Context(), shop, ref)
			if want := map[bool]int{false: 2, true: 3}[test.fail]; of.asked != want {
				t.Errorf("the API server was asked %d times, want %d", of.asked, want)
			}
		})
	}
}

// An owner with an impossible name does not exist, and does not protect pods forever.
func TestOwnerOfNoName(t *testing.T) {
	server := newServer(t)
	s := newScales(&scaled{}, server.clock)
	for _, name := range []string{"a/b", "..", "a%b"} {
		ref := coverage.Ref{APIVersion: "example.com/v1", Kind: "Cache", Name: name, UID: "u"}
		if got, err := s.of(t.Context(), shop, ref); !reflect.DeepEqual(got, coverage.WithoutScale(ref)) || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Creators of pods can invent owners. A hundred are read, and the pods of the others are expected as they are.
func TestOwnersAreBounded(t *testing.T) {
	_, r, first, _ := started(t)
	of := &scaled{get: func(*autoscalingv1.Scale) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "caches"}, "db")
	}}
	r.world.scales.client = of
	for i := range 2 * coverage.MostOwners {
		pod := aPod(10+i, 20)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Cache", Name: "db", UID: types.UID(fmt.Sprint(i)), Controller: new(true)}}
		if r.sees(pod); i == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
	}
	r.want(first, "x", true)
	if of.asked != coverage.MostOwners {
		t.Errorf("%d owners are asked", of.asked)
	}
	report, err := r.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none)
	if err != nil {
		t.Fatal(err)
	}
	found := coverage.Findings(report.World, report.State, report.Measures)
	if len(found) != 1 || !strings.Contains(found[0].Message, "missing pods go unnoticed") {
		t.Errorf("the findings are %+v", found)
	}
	if report.Measures.Expected != 2+2*coverage.MostOwners-1 {
		t.Errorf("%d pods are expected", report.Measures.Expected)
	}
}
