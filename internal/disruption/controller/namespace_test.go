package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	marks   = `patch namespace shop {"metadata":{"labels":{"vicinity.dev/disruption-budgets":"true"}}}`
	unmarks = `patch namespace shop {"metadata":{"labels":{"vicinity.dev/disruption-budgets":null}}}`
)

// The label is set with the first budget of a namespace and removed with the last.
func TestLabelFollowsBudgets(t *testing.T) {
	w := newWorld(t, namespace(shop))
	w.label(shop)
	w.make(perZone("web", 1))
	w.sync("web") // the namespace comes first, so that no status says that it lacks the label
	w.label(shop, marks)
	w.label(shop)
	w.sync("web", "status budget web")
	w.says("web", v1alpha1.ConditionEnforced, metav1.ConditionTrue, reasonEnforced)
	w.make(perZone("db", 1))
	w.label(shop)
	w.sync("db", "status budget db")
	w.drop(w.budget("web"))
	w.label(shop)
	if !w.labelled(shop) {
		t.Error("the label went with the first of two budgets")
	}
	w.drop(w.budget("db"))
	w.label(shop, unmarks)
	w.label(shop)
	stored := namespace(shop)
	if !w.exists(stored) || len(stored.Labels) != 1 {
		t.Errorf("left are the labels %v", stored.Labels)
	}
}

// A process that ends does not wait for the syncs of budgets.
func TestFullQueueOfNamespaces(t *testing.T) {
	w := newWorld(t, namespace(shop), perZone("web", 1))
	for range waitingNamespaces {
		w.r.namespaces.changed <- event.GenericEvent{Object: namespace(shop)}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.r.namespaces.note(ctx, shop, mark{})
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the sync of the namespace hangs")
	}
}

// Evictions in the namespaces of Vicinity and of the cluster itself must never depend on Vicinity.
func TestSomeNamespacesAreNeverLabelled(t *testing.T) {
	for _, name := range []string{metav1.NamespaceSystem, own} {
		b := perZone("web", 1)
		b.Namespace = name
		w := newWorld(t, namespace(name), b)
		w.label(name)
		w.syncIn(name, "web", "status budget web")
		if w.labelled(name) {
			t.Errorf("%s is labelled", name)
		}
		w.expectEvents("Warning BudgetNotEnforced")
	}
}

// A removed label is restored, with an event that names a better way.
func TestRemovedLabelIsRestored(t *testing.T) {
	w := newWorld(t, append(aShop(), perZone("web", 1))...)
	w.label(shop, marks)
	w.sync("web", "status budget web")
	w.expectEvents("Normal BudgetEnforced", "Warning OwnersDeleteDirectly")
	change(w, namespace(shop), func(n *corev1.Namespace) { delete(n.Labels, v1alpha1.LabelBudgets) })
	w.label(shop, marks)
	w.expectEvents("Warning LabelPutBack")
	change(w, namespace(shop), func(n *corev1.Namespace) { n.Labels[v1alpha1.LabelBudgets] = "no" })
	w.label(shop, marks)
	w.expectEvents("Warning LabelPutBack")
}

// While the label cannot be written, the budget reports it.
func TestRefusedLabel(t *testing.T) {
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: shop}}
	for name, fails := range map[string]func(*world){
		"may not patch": func(w *world) {
			w.refuse = func(what string) error {
				if strings.HasPrefix(what, "patch") {
					return errors.New("may not patch namespaces")
				}
				return nil
			}
		},
		"did not store the label": func(w *world) { w.strip = true },
	} {
		w := newWorld(t, append(aShop(), perZone("web", 1))...)
		fails(w)
		if _, err := w.r.namespaces.Reconcile(context.Background(), request); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error is %v, want %q", err, name)
		}
		w.wrote(marks)
		w.sync("web", "status budget web")
		if message := w.says("web", v1alpha1.ConditionEnforced, metav1.ConditionFalse, reasonLabelMissing); !strings.Contains(message, name) {
			t.Errorf("the condition says %q", message)
		}
		w.expectEvents("Warning BudgetNotEnforced", "Warning OwnersDeleteDirectly")
		w.refuse, w.strip = nil, false
		w.label(shop, marks)
		w.sync("web", "status budget web")
		w.expectEvents("Normal BudgetEnforced")
	}
}

// asking changes the webhook of evictions.
func asking(f func(*admissionv1.MutatingWebhook)) func(*world) {
	return func(w *world) {
		change(w, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "vicinity"}}, func(c *admissionv1.MutatingWebhookConfiguration) {
			f(&c.Webhooks[0])
		})
	}
}

// The condition says whether evictions are checked, and otherwise why not.
func TestEnforcedSaysWhyNot(t *testing.T) {
	off := testOptions()
	off.Served = false
	elsewhere := testOptions()
	elsewhere.Service = "other"
	for _, test := range []struct {
		name    string
		options Options
		change  func(*world)
		want    string
	}{
		{"all is there", testOptions(), func(*world) {}, reasonEnforced},
		{"no webhook is served", off, func(*world) {}, reasonWebhooksOff},
		{"webhooks of another installation", elsewhere, func(*world) {}, reasonWebhooksMissing},
		{"the configuration is deleted", testOptions(), func(w *world) {
			w.drop(&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "vicinity"}})
		}, reasonWebhooksMissing},
		{"it asks about something else", testOptions(), asking(func(h *admissionv1.MutatingWebhook) {
			h.Rules[0].Resources = []string{"services"}
		}), reasonWebhooksMissing},
		{"what gets no answer passes", testOptions(), asking(func(h *admissionv1.MutatingWebhook) {
			h.FailurePolicy = new(admissionv1.Ignore)
		}), reasonWebhooksChanged},
		{"what gets no answer is refused", testOptions(), asking(func(h *admissionv1.MutatingWebhook) {
			h.FailurePolicy = new(admissionv1.Fail)
		}), reasonEnforced},
		{"other namespaces are asked about", testOptions(), asking(func(h *admissionv1.MutatingWebhook) {
			h.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
		}), reasonWebhooksChanged},
		{"the label's namespaces are asked about", testOptions(), asking(func(h *admissionv1.MutatingWebhook) {
			h.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelBudgets: "true"}}
		}), reasonEnforced},
		{"evictions with labels are asked about", testOptions(), asking(func(h *admissionv1.MutatingWebhook) {
			h.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
		}), reasonWebhooksChanged},
		{"some evictions are asked about", testOptions(), asking(func(h *admissionv1.MutatingWebhook) {
			h.MatchConditions = []admissionv1.MatchCondition{{Name: "some", Expression: "false"}}
		}), reasonWebhooksChanged},
	} {
		w := newWorld(t, append(aShop(), perZone("web", 1))...)
		test.change(w)
		w.start(test.options)
		w.label(shop, marks)
		w.sync("web", "status budget web")
		status := metav1.ConditionFalse
		if test.want == reasonEnforced {
			status = metav1.ConditionTrue
		}
		if message := w.says("web", v1alpha1.ConditionEnforced, status, test.want); message == "" {
			t.Errorf("%s: there is no message", test.name)
		}
	}
}
