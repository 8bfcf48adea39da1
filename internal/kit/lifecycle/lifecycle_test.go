package lifecycle

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// listing is a discovery client with a fixed answer.
type listing struct {
	resources []string
	err       error
}

func (l listing) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{GroupVersion: groupVersion}
	for _, name := range l.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, l.err
}

func TestServed(t *testing.T) {
	all := listing{resources: []string{"evictions", "evictions/status", "evictionrequests", "evictionrequests/status"}}
	none := listing{err: apierrors.NewNotFound(schema.GroupResource{}, "")}
	d := NewDetector(nil, logr.Discard())
	for _, step := range []struct {
		name string
		listing
		want bool
	}{
		{"not there", none, false},
		{"a part of it", listing{resources: []string{"evictions", "evictions/status"}}, false},
		{"there", all, true},
		{"no answer", listing{err: errors.New("down")}, true},
		{"gone again", none, false},
	} {
		d.server = step.listing
		if d.Look(t.Context()); d.Served() != step.want {
			t.Errorf("%s: served is %t", step.name, d.Served())
		}
	}
}
