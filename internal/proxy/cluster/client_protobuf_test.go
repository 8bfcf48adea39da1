package cluster

import (
	"net/http"
	"net/http/httptest"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// protobufServer answers in protobuf, as encoded with the scheme of the client library.
func protobufServer(t *testing.T) *Client {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentProtobuf)
	encoded := func(version schema.GroupVersion, object runtime.Object) []byte {
		data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, version), object)
		if err != nil {
			t.Error(err)
		}
		return data
	}
	answer := func(w http.ResponseWriter, code int, version schema.GroupVersion, object runtime.Object) {
		w.Header().Set("Content-Type", contentProtobuf)
		w.WriteHeader(code)
		_, _ = w.Write(encoded(version, object))
	}
	refuse := func(w http.ResponseWriter, err *apierrors.StatusError) {
		answer(w, int(err.ErrStatus.Code), corev1.SchemeGroupVersion, &err.ErrStatus)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "7"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /apis/coordination.k8s.io/v1/namespaces/vicinity-system/leases/there":
			answer(w, http.StatusOK, coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "there"}})
		case "GET /apis/coordination.k8s.io/v1/namespaces/vicinity-system/leases/gone":
			refuse(w, apierrors.NewNotFound(coordinationv1.Resource("leases"), "gone"))
		case "POST /apis/events.k8s.io/v1/namespaces/shop/events":
			refuse(w, apierrors.NewAlreadyExists(eventsv1.Resource("events"), "web.1"))
		case "GET /api/v1/services":
			if r.URL.Query().Get("watch") == "" {
				answer(w, http.StatusOK, corev1.SchemeGroupVersion, &corev1.ServiceList{Items: []corev1.Service{*service}})
				return
			}
			w.Header().Set("Content-Type", contentProtobuf+";stream=watch")
			message := &metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: encoded(corev1.SchemeGroupVersion, service)}}
			stream := info.StreamSerializer
			err := streaming.NewEncoder(stream.NewFrameWriter(w), scheme.Codecs.EncoderForVersion(stream.Serializer, corev1.SchemeGroupVersion)).Encode(message)
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("asked for %s %s", r.Method, r.URL)
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClientReadsProtobuf(t *testing.T) {
	c := protobufServer(t)
	leases := c.Leases("vicinity-system")
	if lease, err := leases.Get(t.Context(), "there", metav1.GetOptions{}); err != nil || lease.Name != "there" {
		t.Errorf("the Lease is %v, %v", lease, err)
	}
	if _, err := leases.Get(t.Context(), "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Lease that is gone: %v", err)
	}
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}}
	if err := c.CreateEvent(t.Context(), event); !apierrors.IsAlreadyExists(err) {
		t.Errorf("an event that is there: %v", err)
	}
	list, err := cache.ToListerWithContext(c.Services()).ListWithContext(t.Context(), metav1.ListOptions{})
	if services, ok := list.(*corev1.ServiceList); err != nil || !ok || len(services.Items) != 1 || services.Items[0].Name != "web" {
		t.Errorf("the list is %v, %v", list, err)
	}
	watch, err := cache.ToWatcherWithContext(c.Services()).WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if service, ok := (<-watch.ResultChan()).Object.(*corev1.Service); !ok || service.Name != "web" {
		t.Errorf("the watch has %v", service)
	}
}
