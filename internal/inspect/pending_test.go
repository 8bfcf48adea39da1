package inspect

import (
	"reflect"
	"testing"
)

func TestHeldTextIsShort(t *testing.T) {
	held := map[string][]string{}
	for _, address := range []string{"5", "4", "3", "2", "1"} {
		held[address] = []string{"zone-a"}
	}
	if got, want := heldText(held), []string{"the plan takes from zone-a what it keeps for a moment: 1, 2, 3 and 2 more"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
