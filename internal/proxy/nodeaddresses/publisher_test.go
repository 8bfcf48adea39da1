package nodeaddresses

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology/netset"
)

func aNode(name string, addresses ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, address := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return node
}

func empty() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity", Name: v1alpha1.ConfigMapNodeAddresses, Labels: map[string]string{"a": "b"}}}
}

// server is an API server that counts writes.
type server struct {
	client.Client
	writes int
}

func newServer(objects ...client.Object) *server {
	s := &server{}
	s.Client = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			s.writes++
			return c.Update(ctx, object, options...)
		},
	}).Build()
	return s
}

func (s *server) published(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(empty()), object); err != nil {
		t.Fatal(err)
	}
	return object
}

func (s *server) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := newPublisher(s, clock.RealClock{}, "vicinity").Reconcile(t.Context(), reconcile.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// The ConfigMap has the addresses of all nodes. It is written only when its content is wrong, for example after a
// foreign change.
func TestAddressesArePublished(t *testing.T) {
	one := aNode("one", "192.0.2.1", "2001:db8::1", "not an address")
	one.Status.Addresses = append(one.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "203.0.113.1"})
	one.Spec.PodCIDR = "10.1.0.0/24"
	two := aNode("two", "192.0.2.9")
	two.Spec.PodCIDR, two.Spec.PodCIDRs = "10.1.1.0/24", []string{"10.1.1.0/24", "fd01::/64", "here"}
	s := newServer(one, two, empty())
	is := func(when string, writes int, nodes, pods string) {
		t.Helper()
		if result := s.reconcile(t); result != (reconcile.Result{}) {
			t.Errorf("%s: it is looked at again: %+v", when, result)
		}
		got := s.published(t)
		if got.Data[v1alpha1.KeyNodeAddresses] != nodes || got.Data[v1alpha1.KeyPodRanges] != pods || len(got.Data) != 2 || len(got.BinaryData) != 0 || got.Labels["a"] != "b" {
			t.Errorf("%s: published is %+v", when, got)
		}
		if s.writes != writes {
			t.Errorf("%s: %d writes, want %d", when, s.writes, writes)
		}
	}
	const nodes, pods = "192.0.2.1\n192.0.2.9\n198.51.100.1\n2001:db8::1\n", "10.1.0.0/23\nfd01::/64\n"
	is("at first", 1, nodes, pods)
	is("again", 1, nodes, pods)
	foreign := s.published(t)
	foreign.Data[v1alpha1.KeyNodeAddresses], foreign.Data["other"], foreign.BinaryData = "", "x", map[string][]byte{"y": {1}}
	if err := s.Update(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	is("after a foreign edit", 3, nodes, pods)
	if err := s.Delete(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	is("a node less", 4, "192.0.2.1\n198.51.100.1\n2001:db8::1\n", "10.1.0.0/24\n")
}

// The ConfigMap never exceeds the API's limit. It has room for 15,000 addresses that cannot be merged into ranges:
// 5,000 nodes with an internal address of each family and an external one.
func TestRoomForAddresses(t *testing.T) {
	var nodes []corev1.Node
	for i := range 5000 {
		node := aNode(fmt.Sprint(i), fmt.Sprintf("10.%d.%d.1", 100+i/250, i%250), fmt.Sprintf("fd00:1234:5678:9abc:1111:2222:%x:1", i))
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("198.%d.%d.1", 100+i/250, i%250)})
		nodes = append(nodes, *node)
	}
	wanted, left := data(nodes)
	if lines := strings.Count(wanted[v1alpha1.KeyNodeAddresses], "\n"); lines != 15000 || left != 0 {
		t.Errorf("%d are published and %d are not", lines, left)
	}
	t.Logf("%d bytes", len(wanted[v1alpha1.KeyNodeAddresses]))
	for i := range nodes {
		for j := range 5 {
			nodes[i].Status.Addresses = append(nodes[i].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd00:1234:5678:9abc:1111:%d:%x:1", j, i)})
		}
		nodes[i].Spec.PodCIDRs = []string{fmt.Sprintf("fd00:1234:5678:%x::/64", 2*i), fmt.Sprintf("fd00:1234:5679:%x::/64", 2*i), fmt.Sprintf("fd00:1234:567a:%x::/64", 2*i)}
	}
	wanted, left = data(nodes)
	size := len(wanted[v1alpha1.KeyNodeAddresses]) + len(wanted[v1alpha1.KeyPodRanges])
	if size > 1<<20 || size < 800_000 || left == 0 {
		t.Errorf("%d bytes, %d are not published", size, left)
	}
	for _, text := range wanted {
		set, err := netset.Parse(text)
		if err != nil || len(set.Prefixes()) != strings.Count(text, "\n") {
			t.Errorf("the published data is invalid: %v", err)
		}
	}
	if set, _ := netset.Parse(wanted[v1alpha1.KeyNodeAddresses]); !set.Contains(netip.MustParseAddr("10.100.0.1")) {
		t.Error("an address that has room is missing")
	}
}

// Only changes of addresses count. The more addresses there are, the longer changes are gathered.
func TestChangesAreGathered(t *testing.T) {
	one := aNode("one", "192.0.2.1")
	s := newServer(one, empty())
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	p := newPublisher(s, now, "vicinity")
	reconciled := func(wait time.Duration, writes int) {
		t.Helper()
		result, err := p.Reconcile(t.Context(), reconcile.Request{})
		if err != nil || result.RequeueAfter != wait || s.writes != writes {
			t.Errorf("%+v, %v, %d writes, want %s and %d", result, err, s.writes, wait, writes)
		}
	}
	reconciled(0, 1)
	changed := new(corev1.Node)
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(one), changed); err != nil {
		t.Fatal(err)
	}
	changed.Status.Addresses[0].Address = "192.0.2.2"
	if err := s.Status().Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	reconciled(5*time.Second+10*time.Millisecond, 1) // for one line
	now.SetTime(now.Now().Add(5*time.Second + 10*time.Millisecond))
	reconciled(0, 2)

	before, other, moved := aNode("one", "192.0.2.1"), aNode("one", "192.0.2.2"), aNode("one", "192.0.2.1")
	alive := before.DeepCopy()
	alive.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	moved.Spec.PodCIDRs = []string{"10.1.0.0/24"}
	for after, want := range map[*corev1.Node]bool{other: true, moved: true, alive: false} {
		if got := hasOtherAddresses(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != want {
			t.Errorf("%+v counts: %t", after, got)
		}
	}
}
