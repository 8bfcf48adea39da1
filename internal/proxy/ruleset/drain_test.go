package ruleset

import (
	"slices"
	"testing"
)

// Connections to a drained endpoint end once new ones go elsewhere: at the change, and when a process starts.
func TestDrainedEndpoints(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	drained := func(c Commit) []Stale { return slices.DeleteFunc(c.Stale, func(s Stale) bool { return !s.Drained }) }
	var want []Stale
	for _, target := range targets("12") {
		want = append(want, Stale{Front: dns, Target: target, Drained: true})
	}
	for _, step := range []struct {
		name                      string
		cluster, serving, drained string
		want                      []Stale
	}{
		{"the ramp is over", "34", "12", "", nil},
		{"one is drained, and is used here", "134", "2", "1", nil},
		{"it is no longer used", "34", "12", "1", want[:1]},
		{"nothing changes", "34", "12", "1", nil},
		{"another one", "34", "12", "12", want[1:]},
		{"no other serves", "", "12", "12", nil},
		{"others serve again", "34", "12", "12", want},
		{"they are back", "1234", "", "", nil},
	} {
		sp := dnsPort(step.cluster)
		sp.Known = Known{Serving: targets(step.serving), Drained: targets(step.drained)}
		if got := drained(b.program(t, start, sp)); !slices.Equal(got, step.want) {
			t.Errorf("%s: stale are %v, want %v", step.name, got, step.want)
		}
		if still := b.StillStale(slices.Clone(step.want)); !slices.Equal(still, step.want) {
			t.Errorf("%s: still stale are %v, want %v", step.name, still, step.want)
		}
	}
	if still := b.StillStale(slices.Clone(want)); len(still) > 0 {
		t.Errorf("%v end after the return", still)
	}
	sp := dnsPort("34")
	sp.Known = Known{Serving: targets("12"), Drained: targets("12")}
	b.program(t, start, sp)
	// If the kernel refuses the transaction, the next one has them.
	b.Adopt(b.kernel.list(IPv4))
	if got := drained(b.program(t, start)); !slices.Equal(got, want) {
		t.Errorf("after a refusal, stale are %v, want %v", got, want)
	}
	next := NewTable(Config{Family: IPv4})
	next.Adopt(b.kernel.list(IPv4))
	next.Set(sp)
	if got := drained(next.Commit(start)); !slices.Equal(got, want) {
		t.Errorf("after a restart, stale are %v, want %v", got, want)
	}
}
