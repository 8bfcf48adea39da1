package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// pages is an API server that has PodLocators. It returns two at a time, fewer than the limit of
// a request, as an API server may.
type pages struct {
	client.Reader
	client.Writer
	names   []string
	ending  map[string]bool
	answers []error // of the next lists, nil for success
	deletes []error
	deleted []string
}

func (p *pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	if len(p.answers) > 0 {
		err := p.answers[0]
		if p.answers = p.answers[1:]; err != nil {
			return err
		}
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	if got := asked.LabelSelector.String(); got != "vicinity.dev/managed-by=vicinity-controller" {
		return fmt.Errorf("the selector is %q", got)
	}
	if asked.Limit != removalPage {
		return fmt.Errorf("the limit is %d", asked.Limit)
	}
	all := list.(*metav1.PartialObjectMetadataList)
	for _, name := range p.names {
		switch {
		case name <= asked.Continue:
		case len(all.Items) == 2:
			all.Continue = all.Items[len(all.Items)-1].Name
		default:
			locator := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
			if p.ending[name] {
				locator.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			all.Items = append(all.Items, locator)
		}
	}
	return nil
}

func (p *pages) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	asked := (&client.DeleteOptions{}).ApplyOptions(options)
	if uid := asked.Preconditions.UID; uid == nil || *uid != object.GetUID() || object.GetObjectKind().GroupVersionKind().Kind != "PodLocator" {
		return fmt.Errorf("deleted %s of %s", asked.Preconditions.String(), object.GetObjectKind().GroupVersionKind())
	}
	if len(p.deletes) > 0 {
		err := p.deletes[0]
		if p.deletes = p.deletes[1:]; err != nil {
			return err
		}
	}
	p.names = slices.DeleteFunc(p.names, func(name string) bool { return name == object.GetName() })
	p.deleted = append(p.deleted, object.GetName())
	return nil
}

func TestRemoval(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "podlocators"}
	failed := errors.New("overloaded")
	for _, test := range []struct {
		name    string
		api     pages
		deleted int
	}{
		{"none", pages{}, 0},
		{"several pages", pages{names: []string{"a", "b", "c", "d", "e"}}, 5},
		{"one that goes already", pages{names: []string{"a", "b", "c"}, ending: map[string]bool{"b": true}}, 2},
		{"a list that has expired", pages{names: []string{"a", "b", "c", "d", "e"}, answers: []error{nil, apierrors.NewResourceExpired("")}}, 5},
		{"no such API", pages{names: []string{"a"}, answers: []error{&meta.NoKindMatchError{}}}, 0},
		{"one that is already deleted", pages{names: []string{"a", "b"}, deletes: []error{apierrors.NewNotFound(resource, "a")}}, 1},
		{"another of its name", pages{names: []string{"a", "b"}, deletes: []error{apierrors.NewConflict(resource, "a", failed)}}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &removal{reader: &test.api, writer: &test.api, limiter: flowcontrol.NewFakeAlwaysRateLimiter()}
			removed, err := r.remove(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if removed != test.deleted || len(test.api.deleted) != test.deleted {
				t.Errorf("deleted %q, returned %d, want %d", test.api.deleted, removed, test.deleted)
			}
		})
	}
}

// After a failure the removal retries until all PodLocators are deleted.
func TestRemovalIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("overloaded")
		api := &pages{names: []string{"a", "b", "c", "d", "e"}, answers: []error{failed}, deletes: []error{nil, failed}}
		r := &removal{reader: api, writer: api, limiter: flowcontrol.NewFakeAlwaysRateLimiter()}
		begun := time.Now()
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(api.deleted) != 5 {
			t.Errorf("deleted %q, want all 5", api.deleted)
		}
		if took := time.Since(begun); took != 2*removalRetry {
			t.Errorf("two failures took %s", took)
		}
	})
}

// additions is a manager that records what is added to it.
type additions struct {
	manager.Manager
	added []manager.Runnable
}

func (a *additions) Add(added manager.Runnable) error {
	a.added = append(a.added, added)
	return nil
}

func (*additions) GetAPIReader() client.Reader { return nil }
func (*additions) GetClient() client.Client    { return nil }

// Without a mode, the controller keeps PodLocators of another controller.
func TestUnsetRemovesNothing(t *testing.T) {
	for mode, want := range map[Mode]int{Unset: 0, Off: 1} {
		mgr := new(additions)
		if err := Add(t.Context(), mgr, Options{Mode: mode}); err != nil {
			t.Fatal(err)
		}
		if len(mgr.added) != want {
			t.Errorf("--locators=%s runs %T", mode, mgr.added)
		}
	}
}
