package lease

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestAcknowledgements(t *testing.T) {
	name := func(text string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: text} }
	a := NewAcknowledgements()
	failing := map[string]bool{}
	step := func(what string, want uint64, except ...string) {
		t.Helper()
		a.Settle(func(service types.NamespacedName) bool { return !failing[service.Name] })
		var names []string
		for _, one := range a.Except {
			names = append(names, one.Name)
		}
		if a.Version != want || !slices.Equal(names, except) {
			t.Errorf("%s: %d except %q, want %d except %q", what, a.Version, names, want, except)
		}
	}
	step("nothing asked", 0)
	a.Wait(name("web"), []uint64{12, 10})
	step("two groups at once", 12)
	step("nothing new", 12)

	// A waiting Service is excepted and delays no other.
	failing["bad"] = true
	a.Wait(name("bad"), []uint64{20})
	a.Wait(name("early"), []uint64{19})
	a.Wait(name("late"), []uint64{21})
	step("one waits", 21, "bad")
	a.Wait(name("bad"), []uint64{22, 25, 23})
	if waiting := a.waiting[name("bad")]; len(waiting) > 2 {
		t.Errorf("the queue grows: %v", waiting)
	}
	step("it still does", 21, "bad")
	failing["bad"] = false
	step("it is programmed", 25)

	// A namespace with many waiting Services is excepted as a whole, other Services by name.
	many := func(yield func(types.NamespacedName)) {
		for i := range mostExcept {
			yield(types.NamespacedName{Namespace: "greedy", Name: fmt.Sprintf("many-%02d", i)})
		}
	}
	many(func(one types.NamespacedName) { failing[one.Name] = true; a.Wait(one, []uint64{26}) })
	step("as many wait as fit", 25, allOf(many)...)
	failing["bad"] = true
	a.Wait(name("bad"), []uint64{27})
	a.Wait(name("web"), []uint64{28})
	step("one more waits", 28, "*", "bad")
	many(func(one types.NamespacedName) { delete(failing, one.Name) })
	delete(failing, "bad")
	step("they do not", 28)

	// If more namespaces wait than fit into the exceptions, versions after the first of the others are delayed. A namespace
	// with one waiting Service is not excepted as a whole.
	many = func(yield func(types.NamespacedName)) {
		for i := range mostExcept {
			yield(types.NamespacedName{Namespace: fmt.Sprintf("many-%02d", i), Name: fmt.Sprintf("many-%02d", i)})
		}
	}
	many(func(one types.NamespacedName) { failing[one.Name] = true; a.Wait(one, []uint64{30}) })
	failing["bad"], failing["worse"] = true, true
	a.Wait(name("bad"), []uint64{40})
	a.Wait(name("worse"), []uint64{50})
	a.Wait(name("web"), []uint64{39, 45})
	a.Wait(name("early"), []uint64{60})
	a.Settle(func(service types.NamespacedName) bool { return !failing[service.Name] })
	if a.Version != 39 || len(a.Except) != mostExcept {
		t.Errorf("too many wait: %d except %d", a.Version, len(a.Except))
	}
	if i := slices.IndexFunc(a.Except, func(one types.NamespacedName) bool { return one.Name == v1alpha1.AllServices }); i >= 0 {
		t.Errorf("all of %s are excepted, though one Service waits", a.Except[i].Namespace)
	}
	many(func(one types.NamespacedName) { delete(failing, one.Name) })
	step("few wait", 60, "bad", "worse")
	failing["bad"], failing["worse"] = false, false
	step("none does", 60)

	a.Wait(name("web"), []uint64{55})
	step("versions never fall", 60)
}

// allOf returns the names that a function yields.
func allOf(yield func(func(types.NamespacedName))) (names []string) {
	yield(func(one types.NamespacedName) { names = append(names, one.Name) })
	return names
}
