package proxy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestAcknowledgements(t *testing.T) {
	name := func(text string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: text} }
	a := newAcknowledgements()
	failing := map[string]bool{}
	step := func(what string, want uint64, except ...string) {
		t.Helper()
		a.settle(func(service types.NamespacedName) bool { return !failing[service.Name] })
		var names []string
		for _, one := range a.except {
			names = append(names, one.Name)
		}
		if a.version != want || !slices.Equal(names, except) {
			t.Errorf("%s: %d but for %q, want %d but for %q", what, a.version, names, want, except)
		}
	}
	step("nothing asked", 0)
	a.wait(name("web"), []uint64{12, 10})
	step("two groups at once", 12)
	step("nothing new", 12)

	// What waits is told, and holds up nothing else.
	failing["bad"] = true
	a.wait(name("bad"), []uint64{20})
	a.wait(name("early"), []uint64{19})
	a.wait(name("late"), []uint64{21})
	step("one waits", 21, "bad")
	a.wait(name("bad"), []uint64{22, 25, 23})
	if waiting := a.waiting[name("bad")]; len(waiting) > 2 {
		t.Errorf("what waits grows: %v", waiting)
	}
	step("it still does", 21, "bad")
	failing["bad"] = false
	step("it is programmed", 25)

	// Of a namespace with many of those that wait all Services are told, those of others one by
	// one.
	many := func(tell func(types.NamespacedName)) {
		for i := range mostExcept {
			tell(types.NamespacedName{Namespace: "greedy", Name: fmt.Sprintf("many-%02d", i)})
		}
	}
	many(func(one types.NamespacedName) { failing[one.Name] = true; a.wait(one, []uint64{26}) })
	step("as many wait as can be told", 25, allOf(many)...)
	failing["bad"] = true
	a.wait(name("bad"), []uint64{27})
	a.wait(name("web"), []uint64{28})
	step("one more waits", 28, "*", "bad")
	many(func(one types.NamespacedName) { delete(failing, one.Name) })
	delete(failing, "bad")
	step("they do not", 28)

	// More namespaces than can be told hold up what is later than the first of the others. Those
	// that have one Service each are not told whole.
	many = func(tell func(types.NamespacedName)) {
		for i := range mostExcept {
			tell(types.NamespacedName{Namespace: fmt.Sprintf("many-%02d", i), Name: fmt.Sprintf("many-%02d", i)})
		}
	}
	many(func(one types.NamespacedName) { failing[one.Name] = true; a.wait(one, []uint64{30}) })
	failing["bad"], failing["worse"] = true, true
	a.wait(name("bad"), []uint64{40})
	a.wait(name("worse"), []uint64{50})
	a.wait(name("web"), []uint64{39, 45})
	a.wait(name("early"), []uint64{60})
	a.settle(func(service types.NamespacedName) bool { return !failing[service.Name] })
	if a.version != 39 || len(a.except) != mostExcept {
		t.Errorf("too many wait: %d but for %d", a.version, len(a.except))
	}
	if i := slices.IndexFunc(a.except, func(one types.NamespacedName) bool { return one.Name == v1alpha1.AllServices }); i >= 0 {
		t.Errorf("all of %s are told, of which one waits", a.except[i].Namespace)
	}
	many(func(one types.NamespacedName) { delete(failing, one.Name) })
	step("few wait", 60, "bad", "worse")
	failing["bad"], failing["worse"] = false, false
	step("none does", 60)

	a.wait(name("web"), []uint64{55})
	step("versions never fall", 60)
}

// allOf are the names that a function tells.
func allOf(tell func(func(types.NamespacedName))) (names []string) {
	tell(func(one types.NamespacedName) { names = append(names, one.Name) })
	return names
}

// Services of one namespace that are beyond their bound hold up the hand-over of no other.
func TestShortagesHoldUpNoOther(t *testing.T) {
	w := bounded(t, Bounds{Service: 100, Total: 1 << 20})
	for i := range mostExcept + 1 {
		name := fmt.Sprintf("greedy-%d", i)
		service, group := withExternal(inHandOver(name, fmt.Sprintf("10.96.1.%d", i+1)), 200), handedOver(aGroup(name, name+"-1", "10.1.1.1"))
		service.Namespace, group.Namespace = "greedy", "greedy"
		w.put(service, group)
	}
	w.put(inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.2")))
	w.run(time.Minute)
	if !w.kernel.leads("10.1.1.2") {
		t.Error("the other Service is not programmed")
	}
	// Each object has a version of its own.
	if last := uint64(2*(mostExcept+1) + 2); w.version != last || len(w.except) != 1 || w.except[0].String() != "greedy/*" {
		t.Errorf("%d is acknowledged but for %v, want %d but for all of greedy", w.version, w.except, last)
	}
}
