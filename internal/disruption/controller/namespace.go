package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// namespaces sets the label on namespaces with a budget and removes it from others.
type namespaces struct {
	base
	// changed gets namespaces whose budgets need a new condition Enforced.
	changed chan event.GenericEvent

	mu    sync.Mutex
	marks map[string]mark
}

// mark is the state of the label on a namespace with budgets.
type mark struct {
	// failure says why the label is not confirmed. It is empty if it is.
	failure string
	written shell.Written
}

// waitingNamespaces is the capacity of changed. When it is full, syncs of namespaces wait.
const waitingNamespaces = 100

func newNamespaces(b base) *namespaces {
	return &namespaces{base: b, changed: make(chan event.GenericEvent, waitingNamespaces), marks: map[string]mark{}}
}

// isExcluded reports whether a namespace must not have the label.
func (n *namespaces) isExcluded(name string) bool {
	return name == metav1.NamespaceSystem || name == n.options.Own
}

func (n *namespaces) mark(name string) (m mark, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known = n.marks[name]
	return m, known
}

// note stores the state of the label, and wakes the budgets of the namespace if it changed. While changed is full, it waits until the
// context ends.
func (n *namespaces) note(ctx context.Context, name string, m mark) {
	n.mu.Lock()
	before, known := n.marks[name]
	n.marks[name] = m
	n.mu.Unlock()
	if !known || before.failure != m.failure {
		namespace := shell.NamespaceMetadata()
		namespace.Name = name
		select {
		case n.changed <- event.GenericEvent{Object: namespace}:
		case <-ctx.Done():
		}
	}
}

func (n *namespaces) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.marks, name)
}

// Reconcile implements reconcile.Reconciler.
func (n *namespaces) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer n.syncs.Begin("Namespace " + request.Name)()
	after, err := n.sync(ctx, request.Name)
	result, _, err := shell.Finish(after, err)
	return result, err
}

func (n *namespaces) sync(ctx context.Context, name string) (time.Duration, error) {
	if n.isExcluded(name) {
		return 0, nil
	}
	namespace, err := shell.ReadNamespace(ctx, n.client, name)
	if apierrors.IsNotFound(err) {
		n.forget(name)
		return 0, nil // if the cache is behind, an event follows
	}
	if err != nil {
		return 0, err
	}
	if namespace.DeletionTimestamp != nil {
		return 0, nil // its pods are deleted, not evicted
	}
	budgets, err := budgetsOf(ctx, n.client, name)
	if err != nil {
		return 0, err
	}
	known, seen := n.mark(name)
	if known.written.Pending(namespace, n.clock.Now()) {
		return shell.BehindWait, nil
	}
	labelled := namespace.Labels[v1alpha1.LabelBudgets] == "true"
	switch _, found := namespace.Labels[v1alpha1.LabelBudgets]; {
	case len(budgets) == 0 && !found:
		n.forget(name)
		return 0, nil
	case len(budgets) == 0:
		n.forget(name)
		log.FromContext(ctx).Info("removing the label of a namespace without TopologyDisruptionBudgets", "namespace", name)
		return 0, n.remove(ctx, namespace)
	case labelled && seen && known.failure == "":
		return 0, nil
	case labelled:
		// The cache may not show yet that the label was removed.
		read, err := shell.ReadNamespace(ctx, n.live, name)
		if err != nil {
			return 0, err
		}
		if read.Labels[v1alpha1.LabelBudgets] == "true" {
			n.note(ctx, name, mark{})
			return 0, nil
		}
	}
	if seen && known.failure == "" {
		n.recorder.Eventf(&budgets[0], nil, corev1.EventTypeWarning, eventLabelPutBack, "Disruption",
			"the label %s was removed from the namespace, so evictions were not checked; the controller restores it. To admit evictions, set the annotation %s on a budget", v1alpha1.LabelBudgets, v1alpha1.AnnotationBreakGlass)
	}
	return 0, n.set(ctx, name)
}

func (n *namespaces) set(ctx context.Context, name string) error {
	stored, err := n.patch(ctx, name, `{"metadata":{"labels":{"`+v1alpha1.LabelBudgets+`":"true"}}}`)
	var noted mark
	switch {
	case apierrors.IsNotFound(err) || shell.IsEnding(err):
		return nil
	case err != nil:
		noted.failure = err.Error()
	case stored.Labels[v1alpha1.LabelBudgets] != "true":
		noted.failure = "the API server accepted the write but did not store the label; a mutating webhook may remove it"
		err = fmt.Errorf("labelling Namespace %s: %s", name, noted.failure)
	default:
		noted.written.Note(stored, n.clock.Now())
		log.FromContext(ctx).Info("evictions in the namespace are now checked", "namespace", name)
	}
	n.note(ctx, name, noted)
	return err
}

func (n *namespaces) remove(ctx context.Context, namespace *metav1.PartialObjectMetadata) error {
	_, err := n.patch(ctx, namespace.Name, `{"metadata":{"labels":{"`+v1alpha1.LabelBudgets+`":null}}}`)
	return client.IgnoreNotFound(err)
}

// patch changes only the label. It needs no guard: the rest of the namespace stays, and each event checks the label again.
func (n *namespaces) patch(ctx context.Context, name, body string) (*metav1.PartialObjectMetadata, error) {
	stored := shell.NamespaceMetadata()
	stored.Name = name
	if err := n.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		return nil, fmt.Errorf("labelling Namespace %s: %w", name, err)
	}
	return stored, nil
}
