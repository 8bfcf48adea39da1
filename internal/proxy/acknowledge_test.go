package proxy

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
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

	// More than can be told hold up what is later than the first of the others.
	for i := range mostExcept {
		many := fmt.Sprintf("many-%02d", i)
		failing[many] = true
		a.wait(name(many), []uint64{30})
	}
	failing["bad"], failing["worse"] = true, true
	a.wait(name("bad"), []uint64{40})
	a.wait(name("worse"), []uint64{50})
	a.wait(name("web"), []uint64{39, 45})
	a.wait(name("early"), []uint64{60})
	a.settle(func(service types.NamespacedName) bool { return !failing[service.Name] })
	if a.version != 39 || len(a.except) != mostExcept {
		t.Errorf("too many wait: %d but for %d", a.version, len(a.except))
	}
	for i := range mostExcept {
		failing[fmt.Sprintf("many-%02d", i)] = false
	}
	step("few wait", 60, "bad", "worse")
	failing["bad"], failing["worse"] = false, false
	step("none does", 60)

	a.wait(name("web"), []uint64{55})
	step("versions never fall", 60)
}
