package cluster

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// The API names of the watched resources.
const (
	ResourceServices = "services"
	ResourceGroups   = "endpointgroups"
	ResourceSlices   = "endpointslices"
	ResourceNodes    = "nodes"
	// ResourceRanges has the ranges of cluster IPs.
	ResourceRanges = "servicecidrs"
	// ResourceConfigMaps has the published addresses of all nodes.
	ResourceConfigMaps = "configmaps"
)

// Resources has all watched resources.
var Resources = []string{ResourceServices, ResourceGroups, ResourceSlices, ResourceNodes, ResourceRanges, ResourceConfigMaps}

// Counted returns a configuration of clients that count the received bytes by watched resource, after decompression.
func Counted(api *rest.Config, bytes *prometheus.CounterVec) *rest.Config {
	api = rest.CopyConfig(api)
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { return &countingTransport{next, bytes} })
	return api
}

type countingTransport struct {
	next  http.RoundTripper
	bytes *prometheus.CounterVec
}

// RoundTrip counts the bytes of the answer.
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

// WrappedRoundTripper lets the client library cancel requests and close connections.
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
