package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// triedKernel is what a kernel says that is tried.
type triedKernel struct {
	err   error
	tried []ruleset.Family
}

func (k *triedKernel) CheckSupport(_ context.Context, family ruleset.Family) error {
	k.tried = append(k.tried, family)
	return k.err
}

// Only a kernel without IPv6 does without it. One that has it and lacks a module does not.
func TestLackOfIPv6(t *testing.T) {
	missing := errors.New("its module nft_fib_ipv6 may be missing: no such file or directory; load it")
	for _, test := range []struct {
		name          string
		has           bool
		hasErr, tried error
		lacks         bool
		want          string
	}{
		{name: "it has all", has: true},
		{name: "it has no IPv6", lacks: true, tried: missing},
		{name: "a module is missing", has: true, tried: missing, want: missing.Error() + "; to do without IPv6, start the kernel with ipv6.disable=1"},
		{name: "it is not known", hasErr: errors.New("too many open files"), want: "too many open files"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kernel := &triedKernel{err: test.tried}
			lacks, err := lacksIPv6(t.Context(), func() (bool, error) { return test.has, test.hasErr }, kernel)
			if lacks != test.lacks || (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%t, %v; want %t, %q", lacks, err, test.lacks, test.want)
			}
			if want := test.has; (len(kernel.tried) == 1) != want || want && kernel.tried[0] != ruleset.IPv6 {
				t.Errorf("tried %v", kernel.tried)
			}
		})
	}
}

// A port that another program has, as kube-proxy may, is told with the flag and what to do.
func TestPortThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for flag, c := range map[string]*command{
		flagHealth:  {settings: settings{health: taken.Addr().String(), metrics: "0"}},
		flagMetrics: {settings: settings{health: "0", metrics: taken.Addr().String()}},
		flagPprof:   {settings: settings{health: "0", metrics: "0", pprof: taken.Addr().String()}},
	} {
		err := c.listen(t.Context(), http.NotFoundHandler(), http.NotFoundHandler(), func(err error) { t.Error(err) })
		if err == nil || !strings.HasPrefix(err.Error(), "--"+flag+": ") || !strings.HasSuffix(err.Error(), "end it, or give another port") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	none := &command{settings: settings{health: "0", metrics: "0"}}
	if err := none.listen(t.Context(), nil, nil, func(err error) { t.Error(err) }); err != nil {
		t.Errorf("without any: %v", err)
	}
}

// slowFigures is what takes as long to gather as somebody says.
type slowFigures struct{ began, release chan struct{} }

func (slowFigures) Describe(chan<- *prometheus.Desc) {}

func (f slowFigures) Collect(chan<- prometheus.Metric) {
	f.began <- struct{}{}
	<-f.release
}

// Requests for metrics are not answered by any number at once.
func TestScrapesAreBounded(t *testing.T) {
	figures := slowFigures{make(chan struct{}), make(chan struct{})}
	registry := prometheus.NewRegistry()
	registry.MustRegister(figures)
	handler := metricsHandler(registry)
	codes := make(chan int, mostScrapes)
	for range mostScrapes {
		go func() {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			codes <- recorder.Code
		}()
		<-figures.began
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusServiceUnavailable {
		t.Errorf("one more is answered with %d", recorder.Code)
	}
	close(figures.release)
	for range mostScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one of them is answered with %d", code)
		}
	}
}
