package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// aRollout is in its second wave, after two pods of zone-a.
func aRollout(change ...func(*v1alpha1.DomainRollout)) *v1alpha1.DomainRollout {
	d := &v1alpha1.DomainRollout{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "DomainRollout"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Generation: 3, ResourceVersion: "7"},
		Spec: v1alpha1.DomainRolloutSpec{
			TargetRef: v1alpha1.RolloutTarget{Kind: v1alpha1.KindStatefulSet, Name: "db"}, TopologyKey: corev1.LabelTopologyZone,
		},
		Status: v1alpha1.DomainRolloutStatus{
			ObservedGeneration: 3, Phase: v1alpha1.PhaseProgressing, Revision: "db-2", PreviousRevision: "db-1", Wave: 2, CurrentDomains: []string{"zone-b"},
			Domains: []v1alpha1.RolloutDomain{
				{Name: "zone-a", Pods: 2, Updated: 2, Healthy: 2, State: v1alpha1.DomainDone},
				{Name: "zone-b", Pods: 2, Updated: 1, Unavailable: 1, State: v1alpha1.DomainUpdating},
				{Name: "", Pods: 1, State: v1alpha1.DomainWaiting},
			},
			WaitingFor: `waits for pod db-1 of zone "zone-b" to be ready, or it fails at 15:10:00 UTC`,
			History: []v1alpha1.RolloutTransition{
				{Time: longAgo, Event: "RolloutBegan", Revision: "db-2", Message: "revision db-2 begins, after db-1"},
				{Time: later, Event: "WaveBegan", Revision: "db-2", Message: `pods of zone "zone-b" are replaced`},
			},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue},
				{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue},
				{Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionTrue},
			},
		},
	}
	for _, do := range change {
		do(d)
	}
	return d
}

func inPhase(phase v1alpha1.RolloutPhase, waitingFor string) func(*v1alpha1.DomainRollout) {
	return func(d *v1alpha1.DomainRollout) { d.Status.Phase, d.Status.WaitingFor = phase, waitingFor }
}

func complete(d *v1alpha1.DomainRollout) {
	inPhase(v1alpha1.PhaseComplete, "")(d)
	d.Status.CurrentDomains = nil
	for i := range d.Status.Domains {
		domain := &d.Status.Domains[i]
		domain.Updated, domain.Healthy, domain.Unavailable, domain.State = domain.Pods, domain.Pods, 0, v1alpha1.DomainDone
	}
}

// sideBySide updates both zones at the same time.
func sideBySide(d *v1alpha1.DomainRollout) {
	d.Spec.Waves = &v1alpha1.RolloutWaves{Type: v1alpha1.WavesAll}
	d.Status.Wave, d.Status.CurrentDomains = 1, []string{"zone-a", "zone-b"}
}

func failed(d *v1alpha1.DomainRollout) {
	inPhase(v1alpha1.PhaseFailed, "has failed: pod db-1 did not become healthy in time")(d)
	d.Status.Failure = &v1alpha1.RolloutFailure{Reason: "PodUnhealthy", Domain: "zone-b", Pod: "db-1", Time: later}
	d.Status.Conditions[2] = metav1.Condition{Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionFalse, Message: "pod db-1 did not become healthy in time"}
}

// atPause waits before zone-c.
func atPause(d *v1alpha1.DomainRollout) {
	inPhase(v1alpha1.PhasePaused, `pauses before zone "zone-c" (spec.pauseBefore)`)(d)
	d.Spec.PauseBefore = []string{"zone-b", "zone-c"}
	d.Status.CurrentDomains = nil
	d.Status.Domains[1] = v1alpha1.RolloutDomain{Name: "zone-b", Pods: 2, Updated: 2, Healthy: 2, State: v1alpha1.DomainDone}
	d.Status.Domains[2] = v1alpha1.RolloutDomain{Name: "zone-c", Pods: 1, State: v1alpha1.DomainWaiting}
	d.Spec.Approved = &v1alpha1.RolloutApproval{Revision: "db-2", Domains: []string{"zone-b"}}
}

func invalidNow(d *v1alpha1.DomainRollout) {
	inPhase(v1alpha1.PhaseInvalid, "StatefulSet db replaces its pods by itself")(d)
	d.Status.Conditions[0] = metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionFalse, Message: d.Status.WaitingFor}
}

func withoutStatus(d *v1alpha1.DomainRollout) { d.Status = v1alpha1.DomainRolloutStatus{} }
func behind(d *v1alpha1.DomainRollout)        { d.Generation = 4 }
func paused(d *v1alpha1.DomainRollout)        { d.Spec.Paused = true }

func stopped(action v1alpha1.StopAction) func(*v1alpha1.DomainRollout) {
	return func(d *v1alpha1.DomainRollout) {
		d.Spec.Stop = &v1alpha1.RolloutStop{Revision: "db-2", Action: action}
	}
}

func rollsBack(d *v1alpha1.DomainRollout) {
	d.Status.Revision, d.Status.PreviousRevision, d.Status.RollingBack, d.Status.AbandonedRevisions = "db-1", "", true, []string{"db-2"}
	d.Spec.Stop = &v1alpha1.RolloutStop{Revision: "db-2", Action: v1alpha1.StopRollback}
}

func completeAgain(d *v1alpha1.DomainRollout) {
	complete(d)
	d.Status.RollingBack = false
}

func unasked(d *v1alpha1.DomainRollout) { d.Spec.Stop = nil }

// mended has the revision db-3, which was written after db-2 had failed.
func mended(d *v1alpha1.DomainRollout) {
	d.Status.Revision, d.Status.AbandonedRevisions = "db-3", []string{"db-2"}
	d.Status.History = append(d.Status.History, v1alpha1.RolloutTransition{Event: "RolloutRestarted", Revision: "db-3"})
}

// rolledOut is a cluster with DomainRollouts, and with the StatefulSet db of the revision db-2.
func rolledOut(t *testing.T, rollouts ...*v1alpha1.DomainRollout) *fakeCluster {
	t.Helper()
	var own []runtime.Object
	for _, d := range rollouts {
		own = append(own, inAPI(t, d))
	}
	return &fakeCluster{
		typed: fake.NewClientset(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Generation: 2}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, UpdateRevision: "db-2"}},
		),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(), own...),
	}
}

func ofCloneSet(d *v1alpha1.DomainRollout) {
	d.Spec.TargetRef.APIVersion, d.Spec.TargetRef.Kind = "apps.kruise.io/v1alpha1", "CloneSet"
}

// withCloneSet is a cluster with a DomainRollout, and with the CloneSet db of the revision db-3.
func withCloneSet(t *testing.T, d *v1alpha1.DomainRollout) *fakeCluster {
	t.Helper()
	c := rolledOut(t, d)
	c.typed.Resources = []*metav1.APIResourceList{{
		GroupVersion: "apps.kruise.io/v1alpha1",
		APIResources: []metav1.APIResource{{Name: "clonesets", Kind: "CloneSet"}, {Name: "clonesets/scale", Kind: "Scale"}},
	}}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "metadata": map[string]any{"namespace": "shop", "name": "db", "generation": int64(2)},
		"status": map[string]any{"observedGeneration": int64(2), "updateRevision": "db-3"},
	}}
	c.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(), inAPI(t, d), set)
	return c
}

func (c *fakeCluster) newTemplate(t *testing.T, change func(*appsv1.StatefulSet)) *fakeCluster {
	t.Helper()
	set, err := c.typed.AppsV1().StatefulSets("shop").Get(t.Context(), "db", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(set)
	if _, err := c.typed.AppsV1().StatefulSets("shop").Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRolloutStatusGolden(t *testing.T) {
	other := aRollout(complete, func(d *v1alpha1.DomainRollout) { d.Namespace, d.Name = "ops", "log" })
	for _, test := range []struct {
		name    string
		cluster *fakeCluster
		args    string
	}{
		{"progressing.txt", rolledOut(t, aRollout()), "db"},
		{"progressing.json", rolledOut(t, aRollout()), "dr/db -o json"},
		{"side-by-side.txt", rolledOut(t, aRollout(sideBySide)), "db"},
		{"failed.txt", rolledOut(t, aRollout(failed)), "db"},
		{"invalid.txt", rolledOut(t, aRollout(invalidNow)), "db"},
		{"no-status.txt", rolledOut(t, aRollout(withoutStatus)), "db"},
		{"behind.txt", rolledOut(t, aRollout(behind, paused)), "db"},
		{"rolling-back.txt", rolledOut(t, aRollout(rollsBack)).newTemplate(t, func(s *appsv1.StatefulSet) { s.Status.UpdateRevision = "db-1" }), "db"},
		{"new-template.txt", rolledOut(t, aRollout(complete)).newTemplate(t, func(s *appsv1.StatefulSet) { s.Status.UpdateRevision = "db-3" }), "db"},
		{"custom.txt", withCloneSet(t, aRollout(complete, ofCloneSet)), "db"},
		{"unseen-template.txt", rolledOut(t, aRollout(complete)).newTemplate(t, func(s *appsv1.StatefulSet) { s.Generation = 3 }), "db"},
		{"list.txt", rolledOut(t, aRollout(failed), other), ""},
		{"list-all.txt", rolledOut(t, aRollout(failed), other), "-A"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.cluster.printsGolden(t, "rollout/"+test.name, append([]string{"rollout", "status"}, strings.Fields(test.args)...)...)
		})
	}
}

// TestRolloutChanges runs each command on a rollout in some state, and checks the exit code, the patch
// and the message.
func TestRolloutChanges(t *testing.T) {
	for _, test := range []struct {
		name    string
		rollout *v1alpha1.DomainRollout
		args    string
		code    int
		wrote   string // the patched spec, as JSON
		message string
	}{
		{"pause", aRollout(), "pause", 0, `{"paused":true}`, "no more pods are evicted"},
		{"pause twice", aRollout(paused), "pause", 0, "", "is paused already"},
		{"pause without a controller", aRollout(withoutStatus), "pause", 0, `{"paused":true}`, "rollouts.enabled"},
		{"pause what is complete", aRollout(complete), "pause", 0, `{"paused":true}`, "the next revision waits"},
		{"resume", aRollout(paused, inPhase(v1alpha1.PhasePaused, "is paused")), "resume", 0, `{"paused":null}`, "goes on"},
		{"resume what goes on", aRollout(), "resume", 0, "", "is not paused: it waits for pod db-1"},
		{"approve", aRollout(atPause), "resume", 0, `{"approved":{"revision":"db-2","domains":["zone-b","zone-c"],"failuresBefore":null}}`, `goes on with zone "zone-c"`},
		{"approve after another revision", aRollout(atPause, func(d *v1alpha1.DomainRollout) {
			d.Spec.Approved = &v1alpha1.RolloutApproval{Revision: "db-1", Domains: []string{"zone-a"}, FailuresBefore: &later}
		}), "resume", 0, `{"approved":{"revision":"db-2","domains":["zone-c"],"failuresBefore":null}}`, "approved for revision db-2"},
		{"approve by an old status", aRollout(atPause, behind), "resume", 1, "", "has not read the last change"},
		{"resume what is paused twice over", aRollout(atPause, paused), "resume", 0, `{"paused":null}`, `it pauses before zone "zone-c"`},
		{"resume a failure", aRollout(failed), "resume", 1, "", "resume --retry"},
		{"retry", aRollout(failed), "resume --retry", 0, "failuresBefore", "tries revision db-2 again"},
		{"retry while paused", aRollout(failed, paused), "resume --retry", 0, `"paused":null`, "tries revision db-2 again"},
		{
			"retry by a clock that is behind", aRollout(failed, func(d *v1alpha1.DomainRollout) { d.Status.Failure.Time = future }), "resume --retry", 0,
			`"failuresBefore":"2099-01-02T15:04:05Z"`, "tries revision db-2 again",
		},
		{"retry twice", aRollout(failed, func(d *v1alpha1.DomainRollout) {
			d.Spec.Approved = &v1alpha1.RolloutApproval{Revision: "db-2", FailuresBefore: &later}
		}), "resume --retry", 0, "", "already"},
		{"resume what was aborted", aRollout(inPhase(v1alpha1.PhaseAborted, "was aborted"), stopped(v1alpha1.StopAbort)), "resume", 1, "", `'{"spec":{"stop":null}}'`},
		{"abort", aRollout(), "abort", 0, `{"stop":{"revision":"db-2","action":"Abort"}}`, "3 of 5 pods updated"},
		{"abort twice", aRollout(stopped(v1alpha1.StopAbort)), "abort", 0, "", "already"},
		{"abort after another revision", aRollout(func(d *v1alpha1.DomainRollout) { d.Spec.Stop = &v1alpha1.RolloutStop{Revision: "db-1"} }), "abort", 0, `"revision":"db-2"`, "is aborted"},
		{"abort what is complete", aRollout(complete), "abort", 1, "", "nothing to abort"},
		{"abort without a controller", aRollout(withoutStatus), "abort", 1, "", "rollouts.enabled"},
		{"rollback", aRollout(), "rollback", 0, `{"stop":{"revision":"db-2","action":"Rollback"}}`, "template of revision db-1"},
		{"rollback of what is complete", aRollout(complete), "rollback", 0, `"action":"Rollback"`, "template of revision db-1"},
		{"rollback of what is invalid", aRollout(invalidNow), "rollback", 0, `"action":"Rollback"`, "No pod is replaced for now: StatefulSet db"},
		{"rollback while paused", aRollout(paused), "rollback", 0, `"action":"Rollback"`, "no pod is replaced before"},
		{"rollback twice", aRollout(stopped(v1alpha1.StopRollback)), "rollback", 0, "", "already"},
		{"rollback during one", aRollout(rollsBack), "rollback", 0, "", "already, to revision db-1"},
		{"rollback after one", aRollout(rollsBack, complete, func(d *v1alpha1.DomainRollout) { d.Status.RollingBack = false }), "rollback", 0, "", "was rolled back already"},
		{"rollback to nothing", aRollout(func(d *v1alpha1.DomainRollout) { d.Status.PreviousRevision = "" }), "rollback", 1, "", "Write the right template"},
		{"rollback without a controller", aRollout(withoutStatus), "rollback", 1, "", "rollouts.enabled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := rolledOut(t, test.rollout)
			words := strings.Fields(test.args)
			code, stdout, stderr := c.run(t.Context(), append([]string{"rollout", words[0], "db"}, words[1:]...)...)
			if output := stdout + stderr; code != test.code || !strings.Contains(output, test.message) {
				t.Errorf("code %d, printed %q", code, output)
			}
			if wrote := c.patched(t); (test.wrote == "") != (wrote == "") || !isPartOf(wrote, test.wrote) {
				t.Errorf("wrote %s, want %s", wrote, test.wrote)
			}
		})
	}
}

// isPartOf compares JSON documents without regard to the order of fields, or else looks for a part.
func isPartOf(whole, part string) bool {
	var a, b any
	if json.Unmarshal([]byte(whole), &a) == nil && json.Unmarshal([]byte(part), &b) == nil {
		left, _ := json.Marshal(a)
		right, _ := json.Marshal(b)
		return bytes.Equal(left, right)
	}
	return strings.Contains(whole, part)
}

// patched returns the patch of the spec, or an empty text. The patch must have the resource version.
func (c *fakeCluster) patched(t *testing.T) string {
	t.Helper()
	wrote := ""
	for _, action := range c.dynamic.Actions() {
		patch, ok := action.(kubetesting.PatchAction)
		if !ok {
			continue
		}
		var body struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     json.RawMessage   `json:"spec"`
		}
		if err := json.Unmarshal(patch.GetPatch(), &body); err != nil || body.Metadata.ResourceVersion != "7" {
			t.Errorf("patch %s, %v", patch.GetPatch(), err)
		}
		wrote = string(body.Spec)
	}
	return wrote
}

// TestRolloutChangeAfterConflict completes the rollout between the read and the write.
func TestRolloutChangeAfterConflict(t *testing.T) {
	c := rolledOut(t, aRollout())
	c.dynamic.PrependReactor("patch", rolloutResource, func(kubetesting.Action) (bool, runtime.Object, error) {
		c.write(t, aRollout(complete))
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: rolloutResource}, "db", errors.New("changed"))
	})
	code, stdout, stderr := c.run(t.Context(), "rollout", "abort", "db")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "nothing to abort") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}

func TestRolloutErrors(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"status bd", 1, "it has db, web"},
		{"pause web-set", 1, "StatefulSet web-set is updated by the DomainRollout web"},
		{"abort sts/db", 2, "names no DomainRollout"},
		{"status -w", 2, "needs the NAME"},
	} {
		t.Run(test.args, func(t *testing.T) {
			c := rolledOut(t, aRollout(), aRollout(func(d *v1alpha1.DomainRollout) { d.Name, d.Spec.TargetRef.Name = "web", "web-set" }))
			code, stdout, stderr := c.run(t.Context(), append([]string{"rollout"}, strings.Fields(test.args)...)...)
			if code != test.code || stdout != "" || !strings.Contains(stderr, test.says) {
				t.Errorf("code %d: %s%s", code, stdout, stderr)
			}
		})
	}
}

// TestRolloutWatchEnds has the state at the start of a watch, and the states after it.
func TestRolloutWatchEnds(t *testing.T) {
	back := aRollout(rollsBack)
	backComplete := aRollout(rollsBack, completeAgain)
	for _, test := range []struct {
		name   string
		states []*v1alpha1.DomainRollout
		code   int
		says   string
		lines  int
	}{
		{"complete", []*v1alpha1.DomainRollout{aRollout(), aRollout(complete)}, 0, "", 2},
		{"nothing new is said once", []*v1alpha1.DomainRollout{aRollout(), aRollout(), aRollout(complete)}, 0, "", 2},
		{"failed", []*v1alpha1.DomainRollout{aRollout(), aRollout(failed)}, 1, "has failed", 2},
		{"aborted", []*v1alpha1.DomainRollout{aRollout(), aRollout(inPhase(v1alpha1.PhaseAborted, "was aborted"))}, 1, "was aborted", 2},
		{"invalid", []*v1alpha1.DomainRollout{aRollout(invalidNow)}, 1, "is invalid: StatefulSet db", 1},
		{"an old status is no end", []*v1alpha1.DomainRollout{aRollout(complete, behind), aRollout(), aRollout(complete)}, 0, "", 3},
		{"a failure that was forgiven is no end", []*v1alpha1.DomainRollout{aRollout(failed, behind), aRollout(complete)}, 0, "", 2},
		{"rolled back meanwhile", []*v1alpha1.DomainRollout{aRollout(), back, backComplete}, 1, "revision db-2 was replaced", 3},
		{"a rollback", []*v1alpha1.DomainRollout{back, backComplete}, 0, "", 2},
		{"a rollback that was just asked for", []*v1alpha1.DomainRollout{aRollout(stopped(v1alpha1.StopRollback), behind), aRollout(stopped(v1alpha1.StopRollback), inPhase(v1alpha1.PhaseRollingBack, "restores the previous revision")), back, backComplete}, 0, "", 4},
		{"a rollback that was not asked for", []*v1alpha1.DomainRollout{aRollout(rollsBack, unasked), aRollout(rollsBack, unasked, completeAgain)}, 1, "revision db-2 was replaced", 2},
		{"a rollback that is over at once", []*v1alpha1.DomainRollout{aRollout(), backComplete}, 1, "until you remove spec.stop: kubectl patch dr db -n shop", 2},
		{"another template after a failure", []*v1alpha1.DomainRollout{aRollout(), aRollout(complete, mended)}, 0, "", 2},
		{"deleted", []*v1alpha1.DomainRollout{aRollout(), nil}, 1, "was deleted", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := rolledOut(t, test.states[0])
				if last := test.states[len(test.states)-1]; last != nil {
					c.newTemplate(t, func(s *appsv1.StatefulSet) { s.Status.UpdateRevision = last.Status.Revision })
				}
				c.change(t, test.states)
				code, stdout, stderr := c.run(t.Context(), "rollout", "status", "db", "--watch", "--timeout", "30s")
				if code != test.code || !strings.Contains(stderr, test.says) || strings.Count(stdout, "\n") != test.lines {
					t.Errorf("code %d, said %q:\n%s", code, stderr, stdout)
				}
			})
		})
	}
}

// TestRolloutWatchLosesTheConnection begins and ends a rollback while the cluster does not answer.
func TestRolloutWatchLosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := rolledOut(t, aRollout()).newTemplate(t, func(s *appsv1.StatefulSet) { s.Status.UpdateRevision = "db-1" })
		reads := 0
		c.dynamic.PrependReactor("get", rolloutResource, func(kubetesting.Action) (bool, runtime.Object, error) {
			switch reads++; reads {
			case 2:
				return true, nil, &url.Error{Op: "Get", URL: "https://cluster.example", Err: errors.New("connection refused")}
			case 3:
				c.write(t, aRollout(rollsBack, completeAgain))
			}
			return false, nil, nil
		})
		code, stdout, stderr := c.run(t.Context(), "rollout", "status", "db", "-w", "--timeout", "30s")
		if code != 1 || !strings.Contains(stderr, "connection refused; trying again") || !strings.Contains(stderr, "revision db-2 was replaced") {
			t.Errorf("code %d: %s%s", code, stdout, stderr)
		}
	})
}

// change replaces the state at each read of the rollout; nil deletes it.
func (c *fakeCluster) change(t *testing.T, states []*v1alpha1.DomainRollout) {
	next := 0
	c.dynamic.PrependReactor("get", rolloutResource, func(kubetesting.Action) (bool, runtime.Object, error) {
		if next < len(states) {
			c.write(t, states[next])
			next++
		}
		return false, nil, nil
	})
}

// write writes a state of the rollout, or deletes it.
func (c *fakeCluster) write(t *testing.T, d *v1alpha1.DomainRollout) {
	t.Helper()
	rollouts := v1alpha1.GroupVersion.WithResource(rolloutResource)
	var err error
	if d == nil {
		err = c.dynamic.Tracker().Delete(rollouts, "shop", "db")
	} else {
		err = c.dynamic.Tracker().Update(rollouts, inAPI(t, d), "shop")
	}
	if err != nil {
		t.Error(err)
	}
}
