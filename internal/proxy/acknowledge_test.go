package proxy

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestAcknowledgements(t *testing.T) {
	name := func(text string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: text} }
	a := newAcknowledgements()
	failing := map[string]bool{}
	step := func(what string, want uint64) {
		t.Helper()
		a.settle(func(service types.NamespacedName) bool { return !failing[service.Name] })
		if a.version != want {
			t.Errorf("%s: %d, want %d", what, a.version, want)
		}
	}
	step("nothing asked", 0)
	a.wait(name("web"), []uint64{12, 10})
	step("two groups at once", 12)
	step("nothing new", 12)

	failing["bad"] = true
	a.wait(name("bad"), []uint64{20})
	a.wait(name("early"), []uint64{19})
	a.wait(name("late"), []uint64{21})
	step("one waits, and holds up what is later", 19)
	a.wait(name("late"), []uint64{30})
	step("it still does", 19)
	failing["bad"] = false
	step("it is programmed", 30)

	failing["bad"], failing["worse"] = true, true
	a.wait(name("bad"), []uint64{40})
	a.wait(name("worse"), []uint64{50})
	a.wait(name("web"), []uint64{45})
	a.wait(name("early"), []uint64{60})
	step("two wait", 30)
	failing["bad"] = false
	step("the other still does", 45)
	failing["worse"] = false
	step("none does", 60)

	a.wait(name("web"), []uint64{55})
	step("versions never fall", 60)
}
