package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
)

// fakeServer is an API server in front of a clustertest.API, with Leases and events.
type fakeServer struct {
	*httptest.Server
	t      *testing.T
	api    *clustertest.API
	scheme *runtime.Scheme
	// away names the resource for which the server is unavailable, all if it is empty. It is nil
	// while the server answers.
	away atomic.Pointer[string]

	// patchNode handles a patch of the Node. Without it there is no right to patch.
	patchNode func()

	mu     sync.Mutex
	lease  *coordinationv1.Lease
	writes int
	events []eventsv1.Event
}

func newServer(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{t: t, api: clustertest.NewAPI(), scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s.scheme); err != nil {
			t.Fatal(err)
		}
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// goAway has the server answer nothing more, and ends all watches.
func (s *fakeServer) goAway() {
	s.away.Store(new(string))
	s.CloseClientConnections()
}

// ServeHTTP answers the requests of a proxy.
func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := parts[len(parts)-1]
	away := s.away.Load()
	switch {
	case away != nil && (*away == "" || *away == resource):
		s.fail(w, apierrors.NewServiceUnavailable("away"))
	case r.Method == http.MethodPatch && s.patchNode != nil && slices.Contains(parts, cluster.ResourceNodes):
		s.patchNode()
		s.answer(w, aNode("a"))
	case slices.Contains(parts, "leases"):
		s.serveLease(w, r)
	case resource == "events":
		s.mu.Lock()
		defer s.mu.Unlock()
		if event, ok := s.read(r).(*eventsv1.Event); ok {
			s.events = append(s.events, *event)
			s.answer(w, event)
		}
	case s.api.Sources[resource] != nil:
		s.serve(w, r, resource)
	default:
		s.fail(w, apierrors.NewBadRequest("unknown path "+r.URL.Path))
	}
}

// serve lists or watches a resource.
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
			if err := json.NewEncoder(w).Encode(map[string]any{"type": e.Type, "object": s.typed(e.Object)}); err != nil {
				return // the client has gone
			}
		}
	}
}

func (s *fakeServer) serveLease(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method != http.MethodGet {
		lease, ok := s.read(r).(*coordinationv1.Lease)
		if !ok {
			return
		}
		s.writes++
		lease.ResourceVersion = clustertest.VersionText(s.writes)
		s.lease = lease
	}
	if s.lease == nil {
		s.fail(w, apierrors.NewNotFound(coordinationv1.Resource("leases"), ""))
		return
	}
	s.answer(w, s.lease)
}

// programmed is the version that the Lease acknowledges, empty if there is none.
func (s *fakeServer) programmed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return ""
	}
	return s.lease.Annotations[v1alpha1.AnnotationProgrammed]
}

// read reads the object that a client sends, nil if that fails.
func (s *fakeServer) read(r *http.Request) runtime.Object {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	object, _, err := serializer.NewCodecFactory(s.scheme).UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		s.t.Error(err)
	}
	return object
}

// typed is an object with its kind, which clients need.
func (s *fakeServer) typed(object runtime.Object) runtime.Object {
	kinds, _, err := s.scheme.ObjectKinds(object)
	if err != nil {
		s.t.Error(err)
		return object
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	return object
}

func (s *fakeServer) answer(w http.ResponseWriter, object runtime.Object) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(s.typed(object)); err != nil {
		s.t.Error(err)
	}
}

func (s *fakeServer) fail(w http.ResponseWriter, err *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	if failure := json.NewEncoder(w).Encode(s.typed(&err.ErrStatus)); failure != nil {
		s.t.Error(failure)
	}
}
