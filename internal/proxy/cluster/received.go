package cluster

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// The resources that are watched, as the API names them.
const (
	ResourceServices = "services"
	ResourceGroups   = "endpointgroups"
	ResourceSlices   = "endpointslices"
	ResourceNodes    = "nodes"
	// ResourceRanges are those that cluster IPs are from.
	ResourceRanges = "servicecidrs"
	// ResourceConfigMaps has the addresses of all nodes.
	ResourceConfigMaps = "configmaps"
)

// Resources are all of them.
var Resources = []string{ResourceServices, ResourceGroups, ResourceSlices, ResourceNodes, ResourceRanges, ResourceConfigMaps}

// Counted is a configuration of clients that count the bytes of watched resources, after
// decompression.
func Counted(api *rest.Config, bytes *prometheus.CounterVec) *rest.Config {
	api = rest.CopyConfig(api)
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { return &countingTransport{next, bytes} })
	return api
}

type countingTransport struct {
	next  http.RoundTripper
	bytes *prometheus.CounterVec
}

// RoundTrip counts what comes in answer to a request.
func (t *countingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if resource := parts[len(parts)-1]; slices.Contains(Resources, resource) {
		response.Body = &countingBody{response.Body, t.bytes.WithLabelValues(resource)}
	}
	return response, nil
}

// WrappedRoundTripper lets the client library reach what it wants to cancel or close.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

type countingBody struct {
	io.ReadCloser
	bytes prometheus.Counter
}

// Read reads, and counts what was read.
func (b *countingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.bytes.Add(float64(n))
	return n, err
}
