//go:build linux

package endpointslice

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// largeSlice is a slice as upstream writes them, with as many endpoints as asked for.
func largeSlice(n int) *discoveryv1.EndpointSlice {
	s := aSlice("cart-1")
	yes, no := true, false
	for i := range n {
		zone := string(rune('a' + i%3))
		name := fmt.Sprintf("europe-west-1%s", zone)
		node := fmt.Sprintf("gke-production-pool-%s-%04d", zone, i)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", i/62500, i/250%250, i%250)},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("cart-6d847b5b78-%05d", i), UID: "0f6fbc26-3aab-4e0b-a4a1-2a2f9c3fb6a2",
			},
			NodeName: &node, Zone: &name,
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: name}}},
		})
	}
	return s
}

// sink takes an answer.
type sink struct {
	header http.Header
	bytes  int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(int) {}

func (s *sink) Write(text []byte) (int, error) {
	s.bytes += len(text)
	return len(text), nil
}

// worked is how long this thread has had a processor. On a machine that is busy with
// something else, the time that passes says how busy it is.
func worked(b *testing.B) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		b.Fatal(err)
	}
	return time.Duration(at.Nano())
}

// BenchmarkReview measures the whole handler, from the bytes of a request to those of
// the answer. Beside the mean it prints the 99th percentile, of the time that passed
// and of the time on a processor.
func BenchmarkReview(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		plan := largeSlice(size)
		own := with(plan, labelled(gardener))
		for _, bench := range []struct {
			name           string
			object, stored *discoveryv1.EndpointSlice
			others         []*discoveryv1.EndpointSlice
		}{
			{name: "restored", object: rewritten(plan), stored: plan},
			{name: "one-changed", object: with(rewritten(plan), unready(size-1)), stored: plan},
			{name: "one-gone", object: with(rewritten(plan), func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:] }), stored: plan},
			{name: "all-moved", object: rewritten(plan), others: []*discoveryv1.EndpointSlice{with(plan, func(s *discoveryv1.EndpointSlice) { s.Name = "cart-2" })}},
			{name: "own-zones", object: rewritten(own), stored: own},
		} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, size), func(b *testing.B) {
				h, _ := testHandler(b, &known{slices: bench.others})
				operation := admissionv1.Update
				if bench.stored == nil {
					operation = admissionv1.Create
				}
				review := ask{operation: operation, user: upstreamUser, object: bench.object, stored: bench.stored}.review(b)
				request := httptest.NewRequest(http.MethodPost, Path, http.NoBody)
				w := &sink{header: http.Header{}}
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var took, work []time.Duration
				b.SetBytes(int64(len(review)))
				b.ReportAllocs()
				for b.Loop() {
					request.Body = body{bytes.NewReader(review)}
					begin, had := time.Now(), worked(b)
					h.ServeHTTP(w, request)
					work = append(work, worked(b)-had)
					took = append(took, time.Since(begin))
				}
				b.ReportMetric(percentile(took, 99), "p99-µs")
				b.ReportMetric(percentile(work, 50), "p50-cpu-µs")
				b.ReportMetric(percentile(work, 99), "p99-cpu-µs")
			})
		}
	}
}

// body is a request's.
type body struct{ *bytes.Reader }

func (body) Close() error { return nil }

// percentile is in microseconds.
func percentile(took []time.Duration, p int) float64 {
	slices.Sort(took)
	return float64(took[len(took)*p/100].Nanoseconds()) / 1000
}
