package shift

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// accepted is a shift of zone a for an hour that was accepted 10 s after its creation.
func accepted(spec v1alpha1.ZoneShiftSpec) *v1alpha1.ZoneShift {
	spec.From, spec.For = v1alpha1.ShiftedDomain{Key: topology.Zone, Value: "a"}, metav1.Duration{Duration: time.Hour}
	zs := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: "out", CreationTimestamp: metav1.NewTime(start)}, Spec: spec}
	zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(10 * time.Second))}}
	return zs
}

func TestRamp(t *testing.T) {
	minute := &metav1.Duration{Duration: time.Minute}
	for _, test := range []struct {
		at   time.Duration
		ramp *metav1.Duration
		want string // weight, whether it is returning, and how long that lasts
	}{
		{10 * time.Second, minute, "1.0 false 6s"},
		{16 * time.Second, minute, "0.9 false 6s"},
		{39 * time.Second, minute, "0.6 false 1s"},
		{70 * time.Second, minute, "0.0 false 58m50s"},
		{10 * time.Second, nil, "0.0 false 59m50s"},
		{time.Hour, minute, "0.0 true 6s"},
		{time.Hour + 59*time.Second, minute, "0.9 true 1s"},
		{time.Hour + time.Minute, minute, "none"},
		{time.Hour, nil, "none"},
		{time.Hour + 12*time.Minute, &metav1.Duration{Duration: 2 * time.Hour}, "0.6 true 12m0s"}, // over in the middle of the ramp
	} {
		s, lasts := Of(accepted(v1alpha1.ZoneShiftSpec{Ramp: test.ramp}), start.Add(test.at))
		got := "none"
		if s != nil {
			got = fmt.Sprintf("%.1f %t %s", s.Weight, s.Returning, lasts)
		}
		if got != test.want {
			t.Errorf("after %s: %s, want %s", test.at, got, test.want)
		}
	}
	refused := accepted(v1alpha1.ZoneShiftSpec{})
	refused.Status.Conditions[0].Status = metav1.ConditionFalse
	if s, _ := Of(refused, start.Add(time.Minute)); s != nil {
		t.Errorf("a refused shift is in force: %+v", s)
	}
}

// Connections end after the ramp and the time that they have, and not once endpoints return.
func TestDrain(t *testing.T) {
	for _, test := range []struct {
		at, drain time.Duration
		want      string // whether it is drained, and how long that lasts
	}{
		{64 * time.Second, 5 * time.Minute, "false 6s"},
		{70 * time.Second, 5 * time.Minute, "false 5m0s"},
		{6*time.Minute + 9*time.Second, 5 * time.Minute, "false 1s"},
		{6*time.Minute + 10*time.Second, 5 * time.Minute, "true 53m50s"},
		{70 * time.Second, 0, "true 58m50s"},
		{30 * time.Minute, time.Hour, "false 30m0s"},
		{time.Hour, 0, "false 6s"},
	} {
		spec := v1alpha1.ZoneShiftSpec{Ramp: &metav1.Duration{Duration: time.Minute}, DrainConnections: &metav1.Duration{Duration: test.drain}}
		s, lasts := Of(accepted(spec), start.Add(test.at))
		if got := fmt.Sprintf("%t %s", s.Drained, lasts); got != test.want {
			t.Errorf("after %s with %s: %s, want %s", test.at, test.drain, got, test.want)
		}
	}
}

func TestSelects(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	shop := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	for _, test := range []struct {
		services v1alpha1.ShiftedServices
		want     bool
	}{
		{v1alpha1.ShiftedServices{}, true},
		{v1alpha1.ShiftedServices{Selector: web}, true},
		{v1alpha1.ShiftedServices{Selector: shop}, false},
		{v1alpha1.ShiftedServices{NamespaceSelector: shop}, true},
		{v1alpha1.ShiftedServices{Selector: web, NamespaceSelector: web}, false},
		{v1alpha1.ShiftedServices{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}}, false},
	} {
		zs := accepted(v1alpha1.ZoneShiftSpec{Services: test.services})
		if got := Selects(zs, map[string]string{"app": "web"}, map[string]string{"team": "shop"}); got != test.want {
			t.Errorf("%+v: %t", test.services, got)
		}
	}
}

// A Service follows the accepted shifts that select it, until the first of them changes.
func TestFor(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	ramping := accepted(v1alpha1.ZoneShiftSpec{Ramp: &metav1.Duration{Duration: 10 * time.Minute}, Services: v1alpha1.ShiftedServices{Selector: web}})
	ramping.Name = "ramping"
	all := []*v1alpha1.ZoneShift{accepted(v1alpha1.ZoneShiftSpec{}), {}, ramping}
	now := start.Add(10 * time.Second)
	for app, want := range map[string]string{"web": "[out ramping] 1m0s", "api": "[out] 59m50s"} {
		var names []string
		list, lasts := For(all, map[string]string{"app": app}, nil, now)
		for i := range list {
			names = append(names, list[i].Name)
		}
		if got := fmt.Sprintf("%v %s", names, lasts); got != want {
			t.Errorf("%s follows %s, want %s", app, got, want)
		}
	}
}

// No spec makes the readers panic.
func FuzzShift(f *testing.F) {
	for _, spec := range []string{
		`{"from":{"key":"topology.kubernetes.io/zone","value":"a"},"for":"1h","ramp":"1m","drainConnections":"5m","maxOverload":50,"reason":"test"}`,
		`{"from":{"key":"rack"},"for":"-1h","ramp":"1ns","services":{"selector":{"matchExpressions":[{"key":"","operator":"Like"}]}}}`,
	} {
		f.Add(spec, int64(0))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-1", Labels: map[string]string{topology.Zone: "a"}}}
	f.Fuzz(func(t *testing.T, text string, after int64) {
		var spec v1alpha1.ZoneShiftSpec
		if json.Unmarshal([]byte(text), &spec) != nil {
			return
		}
		zs := accepted(spec)
		zs.Spec = spec
		now := start.Add(time.Duration(after))
		if s, lasts := Of(zs, now); s != nil && (s.Weight < 0 || s.Weight > 1 || lasts < 0) {
			t.Errorf("weight %g for %s", s.Weight, lasts)
		}
		Selects(zs, nil, nil)
		Fault(zs, []*v1alpha1.ZoneShift{accepted(v1alpha1.ZoneShiftSpec{})}, intent.NewCluster([]*corev1.Node{node}), now)
	})
}
