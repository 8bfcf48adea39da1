package reservation

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// lists reads the budgets of a namespace live. Requests that arrive during a read share the next one, since the read
// under way may have missed what they need. Package singleflight would share the read under way.
type lists struct {
	client client.Reader

	mu            sync.Mutex
	reading, next map[string]*list
}

type list struct {
	done    chan struct{}
	budgets map[string]asked
	err     error
}

// of has the budgets of a namespace by name, as stored after the call began.
func (l *lists) of(ctx context.Context, namespace string) (map[string]asked, error) {
	l.mu.Lock()
	shared := l.next[namespace]
	if shared == nil {
		shared = &list{done: make(chan struct{})}
		if l.next == nil {
			l.reading, l.next = map[string]*list{}, map[string]*list{}
		}
		l.next[namespace] = shared
		go l.read(namespace, shared, l.reading[namespace])
	}
	l.mu.Unlock()
	select {
	case <-shared.done:
		return shared.budgets, shared.err
	case <-ctx.Done():
		return nil, fmt.Errorf("listing the budgets of namespace %s took too long: %w", namespace, context.Cause(ctx))
	}
}

// read waits for the read before it.
func (l *lists) read(namespace string, this, before *list) {
	if before != nil {
		<-before.done
	}
	l.mu.Lock()
	delete(l.next, namespace)
	l.reading[namespace] = this
	l.mu.Unlock()
	this.budgets, this.err = l.list(namespace)
	l.mu.Lock()
	if l.reading[namespace] == this {
		delete(l.reading, namespace)
	}
	l.mu.Unlock()
	close(this.done)
}

func (l *lists) list(namespace string) (map[string]asked, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	var found metav1.PartialObjectMetadataList
	found.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TopologyDisruptionBudgetList"))
	if err := l.client.List(ctx, &found, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the budgets of namespace %s: %w", namespace, err)
	}
	budgets := make(map[string]asked, len(found.Items))
	for i := range found.Items {
		budgets[found.Items[i].Name] = askedBy(&found.Items[i])
	}
	return budgets, nil
}

// specsChanged waits until the selectors have the current budgets of a namespace, and reports whether any was learnt
// after a mark.
func (l *Ledger) specsChanged(ctx context.Context, namespace string, mark int) (later bool, err error) {
	budgets, err := l.lists.of(ctx, namespace)
	if err != nil {
		return false, err
	}
	err = await(ctx, func() (err error) {
		later, err = l.world.selectors.hasLearnt(namespace, mark, budgets)
		return err
	})
	return later, err
}
