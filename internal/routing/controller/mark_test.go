package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	ignoresAll  = "Cilium serves the Service and ignores its hints: its setting enable-service-topology is not true; set loadBalancer.serviceTopology=true in Cilium's chart. "
	lacksMark   = "Cilium serves the Service and ignores its hints: the Service lacks the annotation service.kubernetes.io/topology-mode"
	markRemoved = lacksMark + "; " + markFought + ". "
)

// cilium returns cilium-config of a Cilium in place of kube-proxy.
func cilium(topology string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cilium-config"},
		Data:       map[string]string{"kube-proxy-replacement": "true", "enable-service-topology": topology},
	}
}

// markingWorld has the Service web, and a reconciler that has read cilium-config.
func markingWorld(t *testing.T, mode string, service *corev1.Service, objects ...client.Object) *world {
	w := newWorld(t, append(append(threeZones(), service, aSlice("web", 0, twelve)), objects...)...)
	w.restartMarking(mode)
	return w
}

func (w *world) restartMarking(mode string) {
	options := testOptions()
	options.MarkServices = mode
	w.start(options)
	if mode != MarkNever {
		w.reconciler.cilium.read(w.t.Context())
	}
}

func (w *world) mode() string { return w.service("web").Annotations[v1alpha1.AnnotationTopologyMode] }

func TestServicesAreMarked(t *testing.T) {
	disabled := aService("web", v1alpha1.AnnotationSameZone, v1alpha1.Prefer, v1alpha1.AnnotationTopologyMode, "Disabled")
	older := aService("web", v1alpha1.AnnotationSameZone, v1alpha1.Prefer, v1alpha1.AnnotationTopologyAwareHints, "")
	replaced := cilium("true")
	replaced.Data["kube-proxy-replacement"] = "false"
	for name, c := range map[string]struct {
		mode      string
		service   *corev1.Service
		config    []client.Object
		want      string
		condition string // how the message begins, empty if the plan is in force
	}{
		"Cilium follows hints":            {MarkAuto, preferring("web"), []client.Object{cilium("true")}, v1alpha1.MarkRouted, ""},
		"Cilium ignores all hints":        {MarkAuto, preferring("web"), []client.Object{cilium("")}, "", ignoresAll},
		"Cilium beside kube-proxy":        {MarkAuto, preferring("web"), []client.Object{replaced}, v1alpha1.MarkRouted, ""},
		"no Cilium":                       {MarkAuto, preferring("web"), nil, "", ""},
		"always":                          {MarkAlways, preferring("web"), nil, v1alpha1.MarkRouted, ""},
		"never":                           {MarkNever, preferring("web"), []client.Object{cilium("true")}, "", ""},
		"a user's value stays":            {MarkAlways, disabled, []client.Object{cilium("true")}, "Disabled", "Cilium serves the Service and ignores its hints: the Service has the annotation service.kubernetes.io/topology-mode: Disabled; "},
		"a user's older annotation stays": {MarkAlways, older, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := markingWorld(t, c.mode, c.service, c.config...)
			w.settle("web")
			if got := w.mode(); got != c.want {
				t.Errorf("the mode is %q, want %q", got, c.want)
			}
			writes := 1 // the label
			if c.want == v1alpha1.MarkRouted {
				writes++
			}
			if sent := patchesOf(w.takePatches(), "*v1.Service"); len(sent) != writes {
				t.Errorf("the Service was written by %q", sent)
			}
			want := "Allocated"
			if c.condition != "" {
				want = "Allocated,NotInForce"
			}
			if got := w.condition(); got.Reason != want || !strings.HasPrefix(got.Message, c.condition) {
				t.Errorf("condition %+v", got)
			}
			if reported := w.newEvents(); c.condition != "" && (len(reported) != 1 || !strings.HasPrefix(reported[0], "Warning TopologyNotInForce ")) {
				t.Errorf("reported %q", reported)
			}
			w.restartMarking(c.mode)
			w.settle("web")
			if sent := w.takePatches(); len(sent) > 0 {
				t.Errorf("after a restart it sent %q", sent)
			}
		})
	}
}

// The mark is removed in one write with the label, and where it is not wanted any more.
func TestMarkIsRemoved(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the request goes": func(w *world) {
			service := w.service("web")
			delete(service.Annotations, v1alpha1.AnnotationSameZone)
			w.update(service)
		},
		"the namespace is excluded": func(w *world) {
			options := testOptions()
			options.Exclusion.Namespaces = append(options.Exclusion.Namespaces, "shop")
			w.start(options)
		},
		"never": func(w *world) { w.restartMarking(MarkNever) },
		"Cilium ignores hints": func(w *world) {
			w.update(cilium("false"))
			if !w.reconciler.cilium.read(w.t.Context()) || w.reconciler.cilium.read(w.t.Context()) {
				w.t.Error("a change counts once")
			}
		},
		"Cilium is removed": func(w *world) {
			if err := w.client.Delete(w.t.Context(), cilium("true")); err != nil {
				w.t.Fatal(err)
			}
			if w.reconciler.cilium.read(w.t.Context()) {
				w.t.Error("the first absence counts")
			}
			if !w.reconciler.cilium.read(w.t.Context()) || w.reconciler.cilium.read(w.t.Context()) {
				w.t.Error("the second absence does not count once")
			}
		},
		"only the mark is left": func(w *world) {
			service := aService("web", v1alpha1.AnnotationTopologyMode, v1alpha1.MarkRouted)
			service.ResourceVersion = w.service("web").ResourceVersion
			w.update(service)
			status := w.service("web")
			status.Status.Conditions = nil
			if err := w.client.Status().Update(w.t.Context(), status); err != nil {
				w.t.Fatal(err)
			}
			w.restartMarking(MarkAuto)
		},
		"a user opts out": func(w *world) {
			service := w.service("web")
			service.Annotations[v1alpha1.AnnotationTopologyAwareHints] = "Disabled"
			w.update(service)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := markingWorld(t, MarkAuto, preferring("web"), cilium("true"))
			w.settle("web")
			w.takePatches()
			change(w)
			w.settle("web")
			if w.mode() != "" {
				t.Errorf("the mode is %q", w.mode())
			}
			if sent := patchesOf(w.takePatches(), "*v1.Service"); len(sent) != 1 {
				t.Errorf("the Service was written by %q", sent)
			}
		})
	}
}

// Wanted changes of the mark are no fight with another writer.
func TestTogglesAreNoFight(t *testing.T) {
	w := markingWorld(t, MarkAuto, preferring("web"), cilium("true"))
	w.settle("web")
	for i := range 6 {
		w.update(cilium([]string{"false", "true"}[i%2]))
		w.reconciler.cilium.read(t.Context())
		w.sync("web")
		if got, want := w.mode(), []string{"", v1alpha1.MarkRouted}[i%2]; got != want {
			t.Fatalf("toggle %d: the mode is %q", i, got)
		}
		if n := w.recordOfWeb().mark.Failures; n > 0 {
			t.Fatalf("toggle %d counts as loss %d", i, n)
		}
	}
}

// A policy that refuses the mark does not keep hints from being written. The condition says that it is missing.
func TestRefusedMark(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewForbidden(corev1.Resource("services"), "web", errors.New("a policy refuses it")),
		apierrors.NewBadRequest("admission webhook denied the request"),
	} {
		t.Run(refusal.Error(), func(t *testing.T) { testRefusedMark(t, refusal) })
	}
}

func testRefusedMark(t *testing.T, refusal error) {
	t.Helper()
	w := markingWorld(t, MarkAuto, preferring("web"), cilium("true"))
	w.refuse = func(_ client.Object, body string) error {
		if strings.Contains(body, v1alpha1.MarkRouted) {
			return refusal
		}
		return nil
	}
	for end := w.clock.Now().Add(time.Minute); w.clock.Now().Before(end); {
		result := w.sync("web")
		w.copyLabel("web")
		w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Millisecond)))
	}
	if w.hints() != twelve || w.mode() != "" {
		t.Errorf("hints %s, mode %q", w.hints(), w.mode())
	}
	if got := w.condition(); got.Reason != "Allocated,NotInForce" || !strings.HasPrefix(got.Message, markRemoved) {
		t.Errorf("condition %+v", got)
	}
	if n := w.recordOfWeb().mark.Failures; n < reportedLosses || n > 8 {
		t.Errorf("%d attempts in a minute", n)
	}
}

// A Service that cannot be written for a moment has no other writer.
func TestMarkIsLate(t *testing.T) {
	w := markingWorld(t, MarkAuto, preferring("web"), cilium("true"))
	broken := true
	w.refuse = func(_ client.Object, body string) error {
		if broken && strings.Contains(body, v1alpha1.MarkRouted) {
			return apierrors.NewInternalError(errors.New("etcd is away"))
		}
		return nil
	}
	for range 5 {
		_, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(preferring("web"))})
		if w.hints() == twelve && err == nil {
			t.Error("the mark is missing, and the sync has no error")
		}
		w.copyLabel("web")
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
	if n := w.recordOfWeb().mark.Failures; n > 0 || w.hints() != twelve {
		t.Errorf("%d losses, hints %s", n, w.hints())
	}
	broken = false
	w.settle("web")
	if got := w.condition(); got.Reason != "Allocated" || w.mode() != v1alpha1.MarkRouted {
		t.Errorf("the mode is %q, the condition %+v", w.mode(), got)
	}
}

// A Service that another setting has kept out of force has no other writer either.
func TestMarkAfterRestart(t *testing.T) {
	w := markingWorld(t, MarkAuto, preferring("web"), cilium(""))
	w.settle("web")
	w.update(cilium("true"))
	w.restartMarking(MarkAuto)
	w.settle("web")
	if got := w.condition(); got.Reason != "Allocated" || w.mode() != v1alpha1.MarkRouted {
		t.Errorf("the mode is %q, the condition %+v", w.mode(), got)
	}
}

// A controller that cannot read cilium-config yet does not call a plan in force that was not.
func TestNotInForceStaysUntilRead(t *testing.T) {
	w := markingWorld(t, MarkAuto, preferring("web"), cilium(""))
	w.settle("web")
	before := w.condition()
	w.start(testOptions())
	w.settle("web")
	if got := w.condition(); got.Reason != before.Reason || !strings.HasPrefix(got.Message, markUnread+". ") {
		t.Errorf("condition %+v, before %+v", got, before)
	}
	if got := w.reconciler.memory.reports[client.ObjectKeyFromObject(w.service("web"))].state; got != stateNotInForce {
		t.Errorf("the state is %s", got)
	}
	w.update(cilium("true"))
	w.reconciler.cilium.read(t.Context())
	w.settle("web")
	if got := w.condition(); got.Reason != "Allocated" {
		t.Errorf("condition %+v", got)
	}
}

// While cilium-config cannot be read, marks stay as they are, and nothing is claimed.
func TestMarksWithoutRights(t *testing.T) {
	for name, marked := range map[string]bool{"new Service": false, "marked Service": true} {
		t.Run(name, func(t *testing.T) {
			w := markingWorld(t, MarkAuto, preferring("web"), cilium("true"))
			want := ""
			if marked {
				want = v1alpha1.MarkRouted
				w.settle("web")
			}
			w.start(testOptions())
			w.reconciler.cilium.client = unreadable{w.client}
			if w.reconciler.cilium.read(t.Context()) {
				t.Error("the settings changed")
			}
			w.settle("web")
			if w.mode() != want || w.condition().Reason != "Allocated" {
				t.Errorf("the mode is %q, the condition %+v", w.mode(), w.condition())
			}
			if n := w.reconciler.cilium.failing.Load(); n != 1 {
				t.Errorf("the metric is %d", n)
			}
		})
	}
}

type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("it is forbidden")
}

// A writer that removes the mark at once is no reason to write all the time, and is reported.
func TestBackOffWhileMarksAreRemoved(t *testing.T) {
	for name, remove := range map[string]bool{"later": false, "by a webhook": true} {
		t.Run(name, func(t *testing.T) {
			w := markingWorld(t, MarkAuto, preferring("web"), cilium("true"))
			unmark := func(object client.Object) {
				if service, ok := object.(*corev1.Service); ok {
					delete(service.Annotations, v1alpha1.AnnotationTopologyMode)
				}
			}
			if remove {
				w.drop = unmark
			}
			for end := w.clock.Now().Add(time.Hour); w.clock.Now().Before(end); {
				result := w.sync("web")
				w.copyLabel("web")
				if service := w.service("web"); !remove && w.mode() != "" {
					unmark(service)
					w.update(service)
				}
				w.clock.SetTime(w.clock.Now().Add(min(max(result.RequeueAfter, time.Millisecond), time.Minute)))
			}
			if sent := patchesOf(w.takePatches(), "*v1.Service"); len(sent) > 25 {
				t.Errorf("%d writes in an hour", len(sent))
			}
			if got := w.condition(); got.Reason != "Allocated,NotInForce" || !strings.HasPrefix(got.Message, markRemoved) {
				t.Errorf("condition %+v", got)
			}
			if reported := w.newEvents(); len(reported) != 2 || !strings.HasPrefix(reported[1], "Warning TopologyNotInForce ") {
				t.Errorf("reported %q", reported)
			}
			w.restartMarking(MarkAuto)
			w.sync("web")
			if reported := w.newEvents(); len(reported) > 0 || w.condition().Reason != "Allocated,NotInForce" {
				t.Errorf("after a restart: reported %q, condition %+v", reported, w.condition())
			}
			w.drop = nil
			w.settle("web")
			w.settle("web") // as after the event of the last write
			if got := w.condition(); w.mode() != v1alpha1.MarkRouted || got.Reason != "Allocated" {
				t.Errorf("the mode is %q, the condition %+v", w.mode(), got)
			}
		})
	}
}
