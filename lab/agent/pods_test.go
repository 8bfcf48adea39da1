package agent

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/shape"
)

// newPodsTest makes the store of an agent with the node "fake".
func newPodsTest() *pods {
	a := &agent{nodes: map[string]*node{}}
	a.nodes["fake"] = &node{Node: shape.Node{Name: "fake", Fake: true}, agent: a}
	a.pods = newPods(a)
	return a.pods
}

func podOn(node, name, addr string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.UID, pod.Spec.NodeName, pod.Status.PodIP = name, uid(name), node, addr
	return pod
}

// In whatever order pods are listed, none gets the address of another.
func TestListedPodsKeepTheirAddresses(t *testing.T) {
	p := newPodsTest()
	list := []any{podOn("fake", "new", "")}
	for slot := 2; slot < 7; slot++ {
		list = append(list, podOn("fake", fmt.Sprint("old-", slot), netip.AddrFrom4([4]byte{10, 128, 1, byte(slot)}).String()))
	}
	ended := podOn("fake", "ended", "10.128.1.100")
	ended.Status.Phase = corev1.PodSucceeded
	if err := p.Replace(append(list, ended), ""); err != nil {
		t.Fatal(err)
	}
	slots := map[uint8]uid{}
	for id, pod := range p.fakes.pods {
		if other, taken := slots[pod.slot]; taken {
			t.Errorf("%s and %s have slot %d", id, other, pod.slot)
		}
		slots[pod.slot] = id
	}
	if len(p.fakes.pods) != len(list) {
		t.Errorf("of %d pods %d are known", len(list), len(p.fakes.pods))
	}
	// What a pod that ended had can be had again.
	free := map[int]bool{}
	for {
		slot, err := p.agent.node("fake").slots.Take()
		if err != nil {
			break
		}
		free[slot] = true
	}
	if !free[100] {
		t.Error("a pod that ended holds its address")
	}
}

// A pod may be listed before its node is added.
func TestListedPodsWaitForTheirNode(t *testing.T) {
	p := newPodsTest()
	if err := p.Replace([]any{podOn("late", "a", "10.128.2.7")}, ""); err != nil {
		t.Fatal(err)
	}
	p.agent.nodes["late"] = &node{Node: shape.Node{Name: "late", Fake: true}, agent: p.agent}
	p.addNode("late")
	if got := p.fakes.pods["a"]; got.slot != 7 {
		t.Errorf("its slot is %d, want 7", got.slot)
	}
}
