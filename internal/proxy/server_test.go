package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
)

// fakeServer is an API server in front of a clustertest.API, with Leases and events.
type fakeServer struct {
	t    *testing.T
	api  *clustertest.API
	away atomic.Bool
	// awayFor is a resource for which the server is away, nil if there is none.
	awayFor atomic.Pointer[string]

	mu     sync.Mutex
	lease  *coordinationv1.Lease
	writes int
	events []eventsv1.Event
}

// ServeHTTP answers the requests of a proxy.
func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.away.Load() {
		s.fail(w, apierrors.NewServiceUnavailable("away"))
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i := len(parts) - 2; i < len(parts); i++ {
		switch {
		case s.awayFor.Load() != nil && parts[i] == *s.awayFor.Load():
			s.fail(w, apierrors.NewServiceUnavailable("away"))
			return
		case s.api.Sources[parts[i]] != nil:
			s.serve(w, r, parts[i])
			return
		case parts[i] == "leases":
			s.serveLease(w, r)
			return
		case parts[i] == "events":
			s.serveEvent(w, r)
			return
		}
	}
	s.fail(w, apierrors.NewBadRequest("unknown path "+r.URL.Path))
}

func (s *fakeServer) serve(w http.ResponseWriter, r *http.Request, resource string) {
	query := r.URL.Query()
	lister := s.api.Lister(resource, query.Get("labelSelector"))
	if query.Get("sendInitialEvents") == "true" {
		s.fail(w, apierrors.NewBadRequest("lists are not streamed"))
		return
	}
	if query.Get("watch") != "true" {
		list, err := lister.List(metav1.ListOptions{})
		var status *apierrors.StatusError
		if errors.As(err, &status) {
			s.fail(w, status)
			return
		}
		s.answer(w, list)
		return
	}
	watching, err := lister.Watch(metav1.ListOptions{ResourceVersion: query.Get("resourceVersion")})
	if err != nil {
		s.t.Error(err)
		return
	}
	defer watching.Stop()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case e, open := <-watching.ResultChan():
			if !open {
				return
			}
			if err := json.NewEncoder(w).Encode(map[string]any{"type": e.Type, "object": typed(e.Object)}); err != nil {
				return // whoever watched has gone
			}
		}
	}
}

// typed is an object that says what it is.
func typed(object runtime.Object) runtime.Object {
	object = object.DeepCopyObject()
	switch o := object.(type) {
	case *corev1.Service:
		o.APIVersion, o.Kind = "v1", "Service"
	case *corev1.ServiceList:
		o.APIVersion, o.Kind = "v1", "ServiceList"
	case *corev1.Node:
		o.APIVersion, o.Kind = "v1", "Node"
	case *corev1.NodeList:
		o.APIVersion, o.Kind = "v1", "NodeList"
	case *corev1.ConfigMap:
		o.APIVersion, o.Kind = "v1", "ConfigMap"
	case *corev1.ConfigMapList:
		o.APIVersion, o.Kind = "v1", "ConfigMapList"
	case *networkingv1.ServiceCIDR:
		o.APIVersion, o.Kind = networkingv1.SchemeGroupVersion.String(), "ServiceCIDR"
	case *networkingv1.ServiceCIDRList:
		o.APIVersion, o.Kind = networkingv1.SchemeGroupVersion.String(), "ServiceCIDRList"
	case *discoveryv1.EndpointSliceList:
		o.APIVersion, o.Kind = discoveryv1.SchemeGroupVersion.String(), "EndpointSliceList"
	case *v1alpha1.EndpointGroup:
		o.APIVersion, o.Kind = v1alpha1.GroupVersion.String(), "EndpointGroup"
	case *v1alpha1.EndpointGroupList:
		o.APIVersion, o.Kind = v1alpha1.GroupVersion.String(), "EndpointGroupList"
	case *coordinationv1.Lease:
		o.APIVersion, o.Kind = coordinationv1.SchemeGroupVersion.String(), "Lease"
	case *eventsv1.Event:
		o.APIVersion, o.Kind = eventsv1.SchemeGroupVersion.String(), "Event"
	case *metav1.Status:
		o.APIVersion, o.Kind = "v1", "Status"
	}
	return object
}

func (s *fakeServer) answer(w http.ResponseWriter, object runtime.Object) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(typed(object)); err != nil {
		s.t.Error(err)
	}
}

func (s *fakeServer) fail(w http.ResponseWriter, err *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	if failure := json.NewEncoder(w).Encode(typed(&err.ErrStatus)); failure != nil {
		s.t.Error(failure)
	}
}

func (s *fakeServer) serveLease(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		if s.lease == nil {
			s.fail(w, apierrors.NewNotFound(coordinationv1.Resource("leases"), ""))
			return
		}
		s.answer(w, s.lease)
		return
	}
	lease := &coordinationv1.Lease{}
	s.read(r, lease)
	s.writes++
	lease.ResourceVersion = clustertest.VersionText(s.writes)
	s.lease = lease
	s.answer(w, lease)
}

func (s *fakeServer) serveEvent(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := &eventsv1.Event{}
	s.read(r, event)
	s.events = append(s.events, *event)
	s.answer(w, event)
}

// read reads what a client of built-in resources sends.
func (s *fakeServer) read(r *http.Request, into interface{ Unmarshal([]byte) error }) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
		return
	}
	// A magic number, and the object in an envelope that says what it is.
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(text[4:]); err != nil {
		s.t.Error(err)
		return
	}
	if err := into.Unmarshal(envelope.Raw); err != nil {
		s.t.Error(err)
	}
}

// programmed is the version that the Lease acknowledges, empty if there is none.
func (s *fakeServer) programmed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return ""
	}
	return s.lease.Annotations["vicinity.dev/programmed"]
}
