package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/golden"
)

// aZoneShift has taken zone-a out of service, some time ago and for 2 hours.
func aZoneShift(ago time.Duration, change ...func(*v1alpha1.ZoneShift)) *v1alpha1.ZoneShift {
	begun := metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second))
	zs := &v1alpha1.ZoneShift{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ZoneShift"},
		ObjectMeta: metav1.ObjectMeta{Name: "zone-a", UID: "1", Generation: 1, ResourceVersion: "7", CreationTimestamp: begun},
		Spec: v1alpha1.ZoneShiftSpec{
			From: v1alpha1.ShiftedDomain{Key: topology.Zone, Value: "zone-a"}, For: metav1.Duration{Duration: 2 * time.Hour},
			Ramp: &metav1.Duration{Duration: time.Minute}, MaxOverload: 50, Reason: "packet loss",
		},
	}
	for _, do := range change {
		do(zs)
	}
	return zs
}

func setCondition(kind string, status metav1.ConditionStatus, reason, message string) func(*v1alpha1.ZoneShift) {
	return func(zs *v1alpha1.ZoneShift) {
		meta.SetStatusCondition(&zs.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: zs.Generation, LastTransitionTime: zs.CreationTimestamp,
		})
	}
}

var (
	shiftAccepted = setCondition(v1alpha1.Accepted, metav1.ConditionTrue, "Accepted", "endpoints leave")
	shiftRefused  = setCondition(v1alpha1.Accepted, metav1.ConditionFalse, "Overlaps", "spec.from: \x1b[2Jnode node-a1 is in the domain of ZoneShift other, too")
	shiftWaiting  = setCondition(v1alpha1.Accepted, metav1.ConditionUnknown, "Waiting", "replicas leave first")
	shiftEnded    = setCondition(v1alpha1.ConditionInForce, metav1.ConditionFalse, "Ended", "the time is over")
)

// shiftStored is accepted, and stored on a number of slices.
func shiftStored(slices int) func(*v1alpha1.ZoneShift) {
	return func(zs *v1alpha1.ZoneShift) {
		shiftAccepted(zs)
		status, reason := metav1.ConditionFalse, "Writing"
		if slices == 40 {
			status, reason = metav1.ConditionTrue, "Stored"
		}
		setCondition(v1alpha1.ConditionInForce, status, reason, fmt.Sprintf("hints: stored on %d of 40 slices; groups: stored in 0 of 0 groups", slices))(zs)
		zs.Status.Services, zs.Status.Yielding, zs.Status.Staying = 12, 1, 2
		zs.Status.Stays = []v1alpha1.StayingService{{Namespace: "shop", Name: "web", Reason: "yields: it has 6 ready endpoints in the domain and 6 outside"}}
	}
}

func shiftUnread(*v1alpha1.ZoneShift) {}

// newShiftedCluster has the Services of newFakeCluster, with slices of Kubernetes' own controller and the pods of a Deployment, and
// ZoneShifts.
func newShiftedCluster(t *testing.T, shifts ...*v1alpha1.ZoneShift) *fakeCluster {
	t.Helper()
	c := newFakeCluster(t)
	list, err := c.typed.DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		slice := &list.Items[i]
		slice.Labels[discoveryv1.LabelManagedBy] = v1alpha1.ManagedByKubernetes
		for j := range slice.Endpoints {
			if slice.Name == "governed-ipv4" {
				slice.Endpoints[j].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("governed-7f9c6d5b8-xxxx%c", "bcdfghjklmnp"[j])}
			}
		}
		if err := c.typed.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), slice, slice.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	for _, zs := range shifts {
		if err := c.dynamic.Tracker().Create(v1alpha1.GroupVersion.WithResource(shiftResource), inAPI(t, zs), ""); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// follow gives the ZoneShift zone-a a state at each read.
func (c *fakeCluster) follow(t *testing.T, states ...func(*v1alpha1.ZoneShift)) {
	t.Helper()
	resource, next := v1alpha1.GroupVersion.WithResource(shiftResource), 0
	c.dynamic.PrependReactor("get", shiftResource, func(kubetesting.Action) (bool, runtime.Object, error) {
		stored, err := c.dynamic.Tracker().Get(resource, "", "zone-a")
		if next == len(states) || err != nil {
			return false, nil, nil
		}
		zs, err := convertTo[v1alpha1.ZoneShift](stored.(*unstructured.Unstructured))
		if err != nil {
			t.Error(err)
			return false, nil, nil
		}
		states[next](zs)
		next++
		if err := c.dynamic.Tracker().Update(resource, inAPI(t, zs), ""); err != nil {
			t.Error(err)
		}
		return false, nil, nil
	})
}

func TestShiftGolden(t *testing.T) {
	ofB := func(zs *v1alpha1.ZoneShift) { zs.Name, zs.Spec.From.Value = "zone-b", "zone-b" }
	for _, test := range []struct {
		name, args string
		code       int
		shifts     []func(*v1alpha1.ZoneShift)
	}{
		{"dry-run.txt", "zone-a --for 1h --reason why --max-overload 100 --dry-run", 0, nil},
		{"dry-run.json", "zone-a --for 1h --reason why --max-overload 100 --selector app=governed --dry-run -o json", 1, nil},
		{"selected.txt", "zone-a --for 90m --reason why --namespace-selector near=true --dry-run", 0, nil},
		{"refused.txt", "zone-a --for 1h --reason why --selector app=governed --yes", 1, nil},
		{"unknown.txt", "north --for 1h --reason why --key topology.kubernetes.io/region --yes", 1, nil},
		{"second.txt", "zone-a --for 1h --reason why --selector app=api --dry-run", 1, []func(*v1alpha1.ZoneShift){ofB, shiftStored(40)}},
		{"list.txt", "status", 0, []func(*v1alpha1.ZoneShift){shiftStored(12)}},
		{"one.txt", "status zone-a", 0, []func(*v1alpha1.ZoneShift){shiftStored(40)}},
		{"unread.txt", "status zone-a", 0, []func(*v1alpha1.ZoneShift){shiftUnread}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newShiftedCluster(t)
				if test.shifts != nil {
					c = newShiftedCluster(t, aZoneShift(time.Hour, test.shifts...))
				}
				code, stdout, stderr := c.run(t.Context(), append([]string{"shift"}, strings.Fields(test.args)...)...)
				if code != test.code {
					t.Errorf("exit code %d, want %d", code, test.code)
				}
				golden.Compare(t, "testdata/shift/"+test.name, stdout+stderr)
				if done := writesTo(c.dynamic); len(done) > 0 {
					t.Errorf("it wrote: %v", done)
				}
			})
		})
	}
}

func TestShift(t *testing.T) {
	const args = "zone-a --for 1h --reason why --max-overload 100 --yes"
	for _, test := range []struct {
		name, args string
		states     []func(*v1alpha1.ZoneShift)
		code       int
		says       []string
		stays      bool // the ZoneShift
	}{
		{"in force", args, []func(*v1alpha1.ZoneShift){shiftUnread, shiftStored(12), shiftStored(12), shiftStored(40)}, 0, []string{
			"\nhints: stored on 12 of 40 slices; groups: stored in 0 of 0 groups; 12 Services move, 1 Service yields, 2 Services stay\nhints: stored on 40 of 40 slices",
			"The shift is in force until 2000-01-01 01:00:00 UTC. To see it: vicinity shift status zone-a. To go back: vicinity shift back zone-a\n",
		}, true},
		{"as JSON", args + " --drain-connections 5m -o json", []func(*v1alpha1.ZoneShift){shiftStored(40)}, 0, []string{"\n}\nhints: stored on 40 of 40 slices"}, true},
		{"replicas of the controller leave first", args, []func(*v1alpha1.ZoneShift){shiftWaiting, shiftStored(40)}, 0, []string{"The shift is in force"}, true},
		{"refused meanwhile", args, []func(*v1alpha1.ZoneShift){shiftUnread, shiftRefused}, 1, []string{"the shift is refused, so no endpoint leaves: spec.from: �[2Jnode node-a1"}, false},
		{"no controller", args, nil, 1, []string{"no controller has accepted ZoneShift zone-a within 30s", "kubectl vicinity doctor", "\"vicinity shift back zone-a\" prevents that"}, true},
		{"without a terminal", strings.TrimSuffix(args, " --yes"), nil, 2, []string{"standard input is no terminal", "--yes"}, false},
		{"without a reason", "zone-a --for 1h --yes", nil, 2, []string{"--reason is missing"}, false},
		{"no time", "zone-a --reason why --yes", nil, 2, []string{"--for is missing"}, false},
		{"too long", args + " --for 73h", nil, 2, []string{`"73h" for "--for" flag: it must be from 1m to 72h`}, false},
		{"far too long", args + " --for 9999999h", nil, 2, []string{`"9999999h" for "--for" flag: it must be from 1m to 72h`}, false},
		{"a long ramp", args + " --ramp 2h", nil, 2, []string{`"2h" for "--ramp" flag: it must be from 0s to 1h`}, false},
		{"a ramp back in time", args + " --ramp -2h", nil, 2, []string{`"-2h" for "--ramp" flag: it must be from 0s to 1h`}, false},
		{"a long reason", args + " --reason " + strings.Repeat("ü", 513), nil, 2, []string{`--reason "üü`, "at most 512 characters"}, false},
		{"no load", args + " --max-overload 0", nil, 2, []string{`"0" for "--max-overload" flag: it must be from 1 to 10000`}, false},
		{"far too much load", args + " --max-overload 99999999999", nil, 2, []string{"it must be from 1 to 10000"}, false},
		{"a long drain", args + " --drain-connections 61m", nil, 2, []string{"--drain-connections", "must be from 0s to 1h"}, false},
		{"a drain after the end", args + " --drain-connections 59m", nil, 2, []string{"--drain-connections 59m ends no connection"}, false},
		{"a wrong selector", args + " --selector a=b=c", nil, 2, []string{"--selector"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newShiftedCluster(t)
				c.follow(t, test.states...)
				code, stdout, stderr := c.run(t.Context(), append([]string{"shift"}, strings.Fields(test.args)...)...)
				for _, text := range test.says {
					if !strings.Contains(stdout+stderr, text) {
						t.Errorf("it does not say %q", text)
					}
				}
				stored, err := c.dynamic.Tracker().Get(v1alpha1.GroupVersion.WithResource(shiftResource), "", "zone-a")
				if drains := strings.Contains(test.args, "--drain-connections 5m"); err == nil && drains {
					if text, _, _ := unstructured.NestedString(stored.(*unstructured.Unstructured).Object, "spec", "drainConnections"); text != "5m0s" {
						t.Errorf("spec.drainConnections is %q", text)
					}
				}
				if code != test.code || test.stays != (err == nil) {
					t.Errorf("exit code %d, stored: %v\n%s%s", code, err, stdout, stderr)
				}
			})
		})
	}
}

// A shift that exists is neither changed nor followed.
func TestShiftExists(t *testing.T) {
	c := newShiftedCluster(t, aZoneShift(time.Hour))
	code, _, stderr := c.run(t.Context(), "shift", "Zone_A", "--for", "1h", "--reason", "why", "--yes")
	if code != 1 || !strings.Contains(stderr, "vicinity shift extend zone-a --for 1h") || !strings.Contains(stderr, "vicinity shift back zone-a") || len(writesTo(c.dynamic)) > 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// The names that users give are those of zones, too.
func TestShiftNames(t *testing.T) {
	for value, want := range map[string]string{
		"zone-a": "zone-a", "a--b.c": "a--b.c", "Zone_A": "zone-a", "a_.b": "a.b", "a._b": "a.b", "a..b": "a.b", "a.-b": "a.b", "a-.-.b": "a.b", "a__b": "a-b",
	} {
		if got := shiftName(value); got != want || len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
	for _, args := range [][]string{{"status", "Zone_A"}, {"extend", "Zone_A", "--for", "2h"}, {"back", "Zone_A", "--now"}} {
		c := newShiftedCluster(t, aZoneShift(time.Hour, shiftStored(40)))
		if code, stdout, stderr := c.run(t.Context(), append([]string{"shift"}, args...)...); code != 0 || !strings.Contains(stdout, "ZoneShift zone-a") {
			t.Errorf("%v: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

func TestShiftWithoutRights(t *testing.T) {
	for _, resource := range []string{"endpointslices", "nodes", shiftResource} {
		c := newShiftedCluster(t)
		c.refuse(resource, forbidden("", resource))
		code, stdout, stderr := c.run(t.Context(), "shift", "zone-a", "--for", "1h", "--reason", "why", "--yes")
		if code != 1 || stdout != "" || !strings.Contains(stderr, "permissions.md") || len(writesTo(c.dynamic)) > 0 {
			t.Errorf("without %s: exit code %d: %s%s", resource, code, stdout, stderr)
		}
	}
}

func TestShiftExtend(t *testing.T) {
	for _, test := range []struct {
		name, length string
		ago          time.Duration
		change       func(*v1alpha1.ZoneShift)
		code         int
		wrote, says  string
	}{
		{"longer", "2h", time.Hour, shiftStored(40), 0, `{"for":"3h0m0s"}`, "ZoneShift zone-a ends at 2000-01-01 02:00:00 UTC\n"},
		{"shorter", "1s", time.Second, shiftStored(40), 0, `{"for":"1m0s"}`, "ends at 2000-01-01 00:00:59 UTC"},
		{"too long", "2h", 71 * time.Hour, shiftStored(40), 1, "", "it began at 1999-12-29 01:00:00 UTC and can last 72h, so --for can be at most 1h now"},
		{"refused", "2h", time.Hour, shiftRefused, 1, "", "ZoneShift zone-a is refused, and another end does not change that: spec.from: �[2Jnode"},
		{"back in time", "-1h", time.Hour, shiftStored(40), 2, "", `"-1h" for "--for" flag: it must be from 0s to 72h`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newShiftedCluster(t, aZoneShift(test.ago, test.change))
				code, stdout, stderr := c.run(t.Context(), "shift", "extend", "zone-a", "--for", test.length)
				if wrote := c.patched(t); code != test.code || !strings.Contains(stdout+stderr, test.says) || wrote != test.wrote {
					t.Errorf("exit code %d, wrote %q: %s%s", code, wrote, stdout, stderr)
				}
			})
		})
	}
}

func TestShiftBack(t *testing.T) {
	const isBack = "ZoneShift zone-a is deleted\nstill out of service: 1 endpoint with topology.kubernetes.io/zone=zone-a\nall endpoints with topology.kubernetes.io/zone=zone-a are back: no hints and no groups keep them out of service\n"
	ended := []func(*v1alpha1.ZoneShift){shiftStored(40), shiftUnread, setCondition(v1alpha1.ConditionInForce, metav1.ConditionFalse, "Returning", "1 endpoint still gets no new connections"), shiftEnded}
	for _, test := range []struct {
		name, flags string
		ago         time.Duration
		states      []func(*v1alpha1.ZoneShift)
		wrote, says string
	}{
		{"with a ramp", "", 90 * time.Minute, ended, `{"for":"1h30m0s"}`, "ZoneShift zone-a ends at 2000-01-01 00:00:00 UTC\n1 endpoint still gets no new connections\nthe time is over\n" + isBack},
		{"at once", "--now", 90 * time.Minute, ended, "", isBack},
		{"a young one", "", 30 * time.Second, ended, "", isBack},
		{"after the end", "", 3 * time.Hour, ended, "", isBack},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newShiftedCluster(t, aZoneShift(test.ago, shiftAccepted))
				c.follow(t, test.states...)
				c.keepOut(t)
				code, stdout, stderr := c.run(t.Context(), append([]string{"shift", "back", "zone-a"}, strings.Fields(test.flags)...)...)
				if wrote := c.patched(t); code != 0 || stdout != test.says || wrote != test.wrote {
					t.Errorf("exit code %d, wrote %q: %s%s", code, wrote, stdout, stderr)
				}
			})
		})
	}
}

// keepOut gives the first endpoint of shop/web hints for no zone, until the slices were listed once.
func (c *fakeCluster) keepOut(t *testing.T) {
	t.Helper()
	const namespace, name = "shop", "web-ipv4"
	lists := 0
	c.typed.PrependReactor("list", "endpointslices", func(action kubetesting.Action) (bool, runtime.Object, error) {
		stored, err := c.typed.Tracker().Get(action.GetResource(), namespace, name)
		if err != nil {
			t.Error(err)
			return false, nil, nil
		}
		slice := stored.(*discoveryv1.EndpointSlice).DeepCopy()
		slice.Endpoints[0].Hints = nil
		if lists++; lists == 1 {
			slice.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: hints.NoZone}}, ForNodes: []discoveryv1.ForNode{{Name: hints.NoNode}}}
		}
		if err := c.typed.Tracker().Update(action.GetResource(), slice, namespace); err != nil {
			t.Error(err)
		}
		return false, nil, nil
	})
}

func TestConfirm(t *testing.T) {
	for answer, confirmed := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "": false} {
		var asked bytes.Buffer
		err := confirm(t.Context(), command.Streams{In: strings.NewReader(answer), Out: io.Discard, Err: &asked}, "Shift zone-a?")
		if (err == nil) != confirmed || asked.String() != "Shift zone-a? [y/N] " {
			t.Errorf("%q: %v, asked %q", answer, err, asked.String())
		}
	}
}
