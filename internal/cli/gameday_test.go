package cli

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/golden"
)

var shifts = v1alpha1.GroupVersion.WithResource(shiftResource)

// newPractice is a cluster whose controller has each ZoneShift in force at once, and changes it at later reads. A vicinity-proxy
// counts 300 connections a second of ops/both and 3 of shop/plain. A third of them ends in zone-a while no ZoneShift exists, and a
// share of them in spite of one.
func newPractice(t *testing.T, share float64, changes ...func(*v1alpha1.ZoneShift)) *fakeCluster {
	t.Helper()
	c := newShiftedCluster(t)
	for _, object := range []runtime.Object{aProxy(), aProxyPod("node-a1")} {
		if err := c.typed.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	node := aNode("node-a1", "zone-a", "4", "")
	node.Labels["rack"] = "zone-a"
	if err := c.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
		t.Fatal(err)
	}
	counted, inside, outside := time.Now(), 0.0, 0.0
	c.typed.AddProxyReactor("pods", func(kubetesting.Action) (bool, rest.ResponseWrapper, error) {
		seconds, part := time.Since(counted).Seconds(), 1./3
		if c.isShifted() {
			part = share
		}
		counted, inside, outside = time.Now(), inside+seconds*part, outside+seconds*(1-part)
		return true, answer{text: metricsText(false,
			sample{"ops", "both", "zone-b", "zone-a", int64(300 * inside), 0, 0}, sample{"ops", "both", "zone-b", "zone-b", int64(300 * outside), 0, 0},
			sample{"shop", "plain", "zone-b", "zone-a", int64(3 * inside), 0, 0}, sample{"shop", "plain", "zone-a", "zone-c", int64(3 * outside), 0, 0},
		)}, nil
	})
	// The tracker selects no fields.
	c.typed.PrependReactor("list", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		return !action.(kubetesting.ListAction).GetListRestrictions().Fields.Empty(), &corev1.PodList{Items: []corev1.Pod{*aProxyPod("late")}}, nil
	})
	states := []func(*v1alpha1.ZoneShift){shiftStored(40)}
	for _, change := range changes {
		states = append(states, func(zs *v1alpha1.ZoneShift) { shiftStored(40)(zs); change(zs) })
	}
	c.follow(t, states...)
	return c
}

func (c *fakeCluster) isShifted() bool {
	_, err := c.dynamic.Tracker().Get(shifts, "", "zone-a")
	return err == nil
}

// crowd leaves ops/both only its first ready endpoints, 4 in zone-a and then others, so that it yields.
func (c *fakeCluster) crowd(t *testing.T, ready int) {
	resource := discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	for _, name := range []string{"both-ipv4", "both-ipv6"} {
		stored, err := c.typed.Tracker().Get(resource, "ops", name)
		if err != nil {
			t.Error(err)
			return
		}
		slice := stored.(*discoveryv1.EndpointSlice).DeepCopy()
		for i := ready; i < len(slice.Endpoints); i++ {
			slice.Endpoints[i].Conditions.Ready = new(false)
		}
		if err := c.typed.Tracker().Update(resource, slice, "ops"); err != nil {
			t.Error(err)
		}
	}
}

// practice takes 2 minutes, with a line each 35 s.
const practice = "gameday zone-a --for 2m --ramp 10s --interval 35s --reason practice --max-overload 100 --yes "

func TestGameDayGolden(t *testing.T) {
	for form, name := range map[string]string{"text": "run.txt", "json": "run.json"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, file := newPractice(t, 0, shiftUnread, shiftUnread, shiftUnread, shiftUnread, shiftEnded), t.TempDir()+"/report.html"
				code, stdout, stderr := c.run(t.Context(), strings.Fields(practice+"--report "+file+" -o "+form)...)
				if code != 0 || c.isShifted() {
					t.Errorf("exit code %d, shifted: %t: %s", code, c.isShifted(), stderr)
				}
				golden.Compare(t, "testdata/gameday/"+name, stdout)
				page, err := os.ReadFile(file)
				if err != nil || !strings.Contains(string(page), "<td>too few connections</td>") || !strings.HasSuffix(string(page), "</html>\n") {
					t.Errorf("%v: %s", err, page)
				}
			})
		})
	}
}

func TestGameDay(t *testing.T) {
	lost := setCondition(v1alpha1.ConditionInForce, metav1.ConditionFalse, "Writing", "hints: stored on 39 of 40 slices")
	for _, test := range []struct {
		name, args string
		share      float64
		ready      int // endpoints of ops/both during the shift, 0 for all
		changes    []func(*v1alpha1.ZoneShift)
		refused    string
		interrupt  time.Duration
		code       int
		says       []string
		lacks      string
	}{
		{
			name: "a Service yields", ready: 6, code: 1,
			says: []string{"\n35s: not predicted to yield: ops/both; 0.0 %", "Going back at once: not predicted to yield: ops/both", "vicinity: the practice run ended early: not predicted to yield: ops/both"}, lacks: "\n1m10s: ",
		},
		{name: "no endpoint outside is ready", ready: 4, code: 1, says: []string{"Going back at once: not predicted to yield: ops/both"}, lacks: "\n1m10s: "},
		{
			name: "not in force for a while", changes: []func(*v1alpha1.ZoneShift){func(*v1alpha1.ZoneShift) {}, lost},
			says: []string{"\n1m10s: no longer in force; ", "hints: stored on 39 of 40", "\n1m45s: 0.0 %"}, lacks: "ended early",
		},
		{name: "the ramp is written", args: "--ramp 1m", changes: []func(*v1alpha1.ZoneShift){lost}, says: []string{"hints: stored on 39 of 40"}, lacks: "no longer in force"},
		{name: "interrupted", interrupt: 100 * time.Second, code: 1, says: []string{"\n35s: ", "Going back at once: it was interrupted", "vicinity: the practice run ended early: it was interrupted"}, lacks: "\n1m10s: "},
		{name: "interrupted before the shift", interrupt: 10 * time.Second, code: 130, says: []string{"Counting connections"}, lacks: "Going back"},
		{name: "more load stays than predicted", share: 0.1, code: 1, says: []string{"10.0 % of new connections end in the domain", "ops/both with 35.0 % on top, 50 % predicted", "by more than 5 points: ops/both by -15.0"}},
		{name: "refused", args: "--selector app=governed", code: 1, says: []string{"the shift would be refused, so nothing was changed"}, lacks: "Counting"},
		{name: "without pods", refused: "pods", says: []string{"; pending pods are unknown; ", "what breaks if the zone goes entirely: you may not list pods", "no connection was counted; ", "no load could be compared", "pending pods: reading Pods is not allowed"}},
		{name: "a rack", args: "--key rack", says: []string{"1 node with rack=zone-a", "connections, which vicinity-proxy counts by zone only", "35s: no connection was counted; ", "no load could be compared"}, lacks: "lose"},
		{name: "too short", args: "--ramp 2m", code: 2, says: []string{"--for 2m is not allowed; it must be longer than --ramp"}},
		{name: "no interval", args: "--interval 0s", code: 2, says: []string{"--interval and --before must be above 0"}},
		{name: "no file", args: "--report /missing/report.html", code: 1, says: []string{"creating the report, before anything changes"}, lacks: "in force"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				if test.interrupt > 0 {
					time.AfterFunc(test.interrupt, interrupt)
				}
				var c *fakeCluster
				if test.ready > 0 {
					test.changes = append([]func(*v1alpha1.ZoneShift){func(*v1alpha1.ZoneShift) { c.crowd(t, test.ready) }}, test.changes...)
				}
				c = newPractice(t, test.share, test.changes...)
				if test.refused != "" {
					c.refuse(test.refused, forbidden("", test.refused))
				}
				code, stdout, stderr := c.run(ctx, strings.Fields(practice+test.args)...)
				for _, text := range test.says {
					if !strings.Contains(stdout+stderr, text) {
						t.Errorf("it does not say %q", text)
					}
				}
				if code != test.code || c.isShifted() || test.lacks != "" && strings.Contains(stdout+stderr, test.lacks) {
					t.Errorf("exit code %d, shifted: %t: %s%s", code, c.isShifted(), stdout, stderr)
				}
			})
		})
	}
}

// A practice run that the controller refuses, or never reads, leaves no ZoneShift.
func TestGameDayWithoutAcceptance(t *testing.T) {
	for want, states := range map[string][]func(*v1alpha1.ZoneShift){
		"ended early: the shift is refused, so no endpoint leaves: spec.from":     {shiftUnread, shiftRefused},
		"ended early: no controller has accepted ZoneShift zone-a within 30s, so": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newShiftedCluster(t)
			c.follow(t, states...)
			code, stdout, stderr := c.run(t.Context(), strings.Fields(practice)...)
			if code != 1 || c.isShifted() || !strings.Contains(stderr, want) || !strings.Contains(stdout, "all endpoints with topology.kubernetes.io/zone=zone-a are back") {
				t.Errorf("exit code %d, shifted: %t: %s%s", code, c.isShifted(), stdout, stderr)
			}
		})
	}
}

// A practice run uses exactly the documented permissions.
func TestGameDayPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPractice(t, 0)
		grouped, err := c.typed.CoreV1().Services("shop").Get(t.Context(), "grouped", metav1.GetOptions{})
		if err != nil || grouped.Labels[v1alpha1.LabelServiceProxyName] == "" {
			t.Fatalf("no Service to ramp up: %v", err)
		}
		c.typed.ClearActions()
		c.dynamic.ClearActions()
		if code, _, stderr := c.run(t.Context(), strings.Fields(practice+"--namespace-selector !none")...); code != 0 {
			t.Fatal(stderr)
		}
		allowed := documentedRights(t, "\n## A practice run\n")
		if !documentedRights(t, "\nIn the namespace of vicinity-proxy:\n")["get pods/proxy "] {
			t.Error("the right to read the proxies' metrics is not documented")
		}
		allowed["get pods/proxy "] = true
		compareRights(t, allowed, c.actions()...)
	})
}
