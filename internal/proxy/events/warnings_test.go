package events

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// recorded has Warnings and the events that they write.
type recorded struct {
	*Warnings
	events []string
}

func newRecorded() *recorded {
	r := &recorded{}
	r.Warnings = NewWarnings(Options{
		Node: "node-a",
		Record: func(about *corev1.ObjectReference, eventType, reason, note string) {
			r.events = append(r.events, fmt.Sprintf("%s %s %s: %s", about.Name, eventType, reason, note))
		},
		Reference: func(name types.NamespacedName) *corev1.ObjectReference {
			if name.Name == "unknown" {
				return nil
			}
			return &corev1.ObjectReference{Namespace: name.Namespace, Name: name.Name}
		},
	})
	return r
}

// reasons writes the due events and returns their reasons.
func (r *recorded) reasons(after time.Duration) (reasons []string) {
	r.events = nil
	r.WriteDue(start.Add(after))
	for _, event := range r.events {
		reasons = append(reasons, strings.TrimSuffix(strings.Fields(event)[2], ":"))
	}
	return reasons
}

// The longest waiting conditions come first. Events beyond the budget are written later.
func TestWaitingEvents(t *testing.T) {
	r := newRecorded()
	named := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("s", i)}
	}
	const many = warnBurst + 10
	for i := range many { // the last one waits longest
		at := start.Add(time.Duration(many-i) * time.Second)
		r.Unreachable(named(i), []string{"a"}, at)
		r.AddressesRefused(named(i), []string{"b"}, at)
	}
	r.reasons(time.Hour)
	for _, reason := range []string{"TopologyUnreachable", "AddressRefused"} {
		var got []string
		for _, event := range r.events {
			if strings.Contains(event, reason) {
				got = append(got, strings.Fields(event)[0])
			}
		}
		if len(got) != warnBurst || got[0] != named(many-1).Name || got[warnBurst-1] != named(10).Name {
			t.Errorf("%s: events about %v, want the %d longest waiting", reason, got, warnBurst)
		}
	}
	if got := r.reasons(time.Hour + warnEvery); !slices.Equal(got, []string{"TopologyUnreachable", "AddressRefused"}) || !strings.HasPrefix(r.events[0], "s9 ") {
		t.Errorf("later events are %q", r.events)
	}
}

func TestEventsOfConditions(t *testing.T) {
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	ports := func(ports ...string) func(*recorded, time.Time) {
		return func(r *recorded, now time.Time) { r.Unreachable(web, ports, now) }
	}
	refused := func(sentences ...string) func(*recorded, time.Time) {
		return func(r *recorded, now time.Time) { r.AddressesRefused(web, sentences, now) }
	}
	bypassed := func(cause string) func(*recorded, time.Time) {
		return func(r *recorded, now time.Time) { r.Bypassed(web, "IPv4", cause, now) }
	}
	taken := func(cause string) func(*recorded, time.Time) {
		failures := map[types.NamespacedName]string{}
		if cause != "" {
			failures[web] = cause
		}
		return func(r *recorded, now time.Time) { r.HealthPortsTaken(failures, now) }
	}
	type step struct {
		after time.Duration // since the previous step
		is    func(*recorded, time.Time)
		want  []string
	}
	nothing := func(*recorded, time.Time) {}
	for name, steps := range map[string][]step{
		"for a moment": {{0, ports("a"), nil}, {WarnAfter / 2, ports(), nil}, {time.Hour, nothing, nil}},
		"begins and ends": {
			{0, ports("a"), nil},
			{WarnAfter, ports("b"), []string{"TopologyUnreachable"}},
			{time.Minute, ports("c"), nil},
			{0, ports(), nil},
			{WarnAfter, ports(), []string{"TopologyReachable"}},
		},
		"ends for a moment": {
			{0, ports("a"), nil},
			{WarnAfter, ports("a"), []string{"TopologyUnreachable"}},
			{time.Minute, ports(), nil},
			{WarnAfter / 2, ports("a"), nil},
			{time.Hour, nothing, nil},
		},
		"refused addresses": {
			{0, refused("a"), nil},
			{WarnAfter, refused("a"), []string{"AddressRefused"}},
			{time.Minute, refused("b"), nil},
			{RefusedEvery, refused("b"), []string{"AddressRefused"}},
			{time.Hour, refused("b"), nil},
		},
		"refused again": {
			{0, refused("a"), nil},
			{WarnAfter, refused("a"), []string{"AddressRefused"}},
			{time.Minute, refused(), nil},
			{time.Minute, refused("b"), nil},
			{RefusedEvery, refused("b"), []string{"AddressRefused"}},
			{0, refused(), nil},
			{RefusedEvery, nothing, nil},
		},
		"packets bypass rules": {
			{0, bypassed("a"), []string{"RulesBypassed"}},
			{0, bypassed("b"), []string{"RulesBypassed"}},
			{time.Hour, bypassed("b"), nil},
			{0, bypassed(""), []string{"RulesTraversed"}},
		},
		"a port is taken": {
			{0, taken("a"), nil},
			{HealthPortWarnAfter, nothing, []string{"FailedToStartServiceHealthcheck"}},
			{time.Hour, nothing, nil},
			{0, taken(""), nil},
		},
		"a port is taken again": {
			{0, taken("a"), nil},
			{HealthPortWarnAfter, nothing, []string{"FailedToStartServiceHealthcheck"}},
			{0, taken(""), nil},
			{time.Second, taken("a"), nil},
			{repeatAfter, nothing, []string{"FailedToStartServiceHealthcheck"}},
			{0, taken(""), nil},
			{time.Hour, nothing, nil},
		},
		"a port is taken briefly": {
			{0, taken("a"), nil},
			{HealthPortWarnAfter / 2, taken(""), nil},
			{time.Hour, nothing, nil},
		},
		"an hour later, no condition that is over is remembered": {
			{0, taken("a"), nil},
			{HealthPortWarnAfter, nothing, []string{"FailedToStartServiceHealthcheck"}},
			{0, taken(""), nil},
			{time.Hour, nothing, nil},
			{0, func(r *recorded, _ time.Time) {
				if n := len(r.conditions[healthPortTaken]); n > 0 {
					t.Errorf("%d conditions are remembered", n)
				}
			}, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorded()
			var at time.Duration
			for i, step := range steps {
				at += step.after
				step.is(r, start.Add(at))
				if got := r.reasons(at); !slices.Equal(got, step.want) {
					t.Errorf("step %d: reasons %q, want %q", i, got, step.want)
				}
			}
		})
	}
}

func TestWarningsAboutUnknownServices(t *testing.T) {
	r := newRecorded()
	r.PortsRefused(map[string]error{"shop/unknown:http": errors.New("no"), "shop/web:http": errors.New("no")}, start)
	r.reasons(0)
	want := []string{"web Warning PortNotProgrammed: node node-a keeps its current rules for shop/web:http: the kernel refuses the change: no"}
	if !slices.Equal(r.events, want) {
		t.Errorf("events %q, want %q", r.events, want)
	}
}
