package allocate

import "testing"

func TestWeightedConsumerSet(t *testing.T) {
	if got, want := NewWeightedConsumerSet(map[string]float64{"b": 1, "a": 1}), NewConsumerSet("a", "b"); got != want {
		t.Errorf("with weights of 1: got %v, want %v", got, want)
	}
	weighted := NewWeightedConsumerSet(map[string]float64{"b": 0.25, "a": 0.75})
	if weighted == NewConsumerSet("a", "b") || weighted.unweighted() != NewConsumerSet("a", "b") {
		t.Errorf("%v does not differ from the set without weights in its weights alone", weighted)
	}
	got := map[string]float64{}
	for zone, weight := range weighted.all() {
		got[zone] = weight
	}
	if len(got) != 2 || got["a"] != 0.75 || got["b"] != 0.25 {
		t.Errorf("got the weights %v", got)
	}
}
