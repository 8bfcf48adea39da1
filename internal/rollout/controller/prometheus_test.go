package controller

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/rollout"
)

// anywhere allows all addresses, as test servers are at loopback ones.
func anywhere(netip.Addr) error { return nil }

// A URL of a rollout cannot lead the controller to itself or to link-local addresses.
func TestServersThatAreNotAsked(t *testing.T) {
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "127.1.2.3": "127.1.2.3", "[::1]": "::1", "[::ffff:127.0.0.1]": "127.0.0.1",
		"0.0.0.0": "0.0.0.0", "169.254.169.254": "169.254.169.254", "[fe80::1]": "fe80::1", "224.0.0.1": "224.0.0.1",
	} {
		_, err := runQuery(t.Context(), newHTTPClient(notOfTheNode), v1alpha1.PrometheusGate{URL: "http://" + host + ":" + port, Query: "up"})
		if err == nil || !strings.Contains(err.Error(), "leads to ") || host != "localhost" && !strings.Contains(err.Error(), "leads to "+want+": a loopback") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if asked {
		t.Error("a server was asked")
	}
	for _, host := range []string{
		"fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200", "::", "ff02::1",
		"64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b:1::169.254.169.254", "64:ff9b::100.100.100.200",
	} {
		if notOfTheNode(netip.MustParseAddr(host)) == nil {
			t.Errorf("%s is asked", host)
		}
	}
	for _, host := range []string{"10.0.0.1", "192.0.2.1", "fd00::1", "100.100.100.201", "64:ff9b::10.0.0.1"} {
		if err := notOfTheNode(netip.MustParseAddr(host)); err != nil {
			t.Errorf("%s is refused: %v", host, err)
		}
	}
}

// FuzzAnswer reads arbitrary answers of servers: they are true or false, or give a reason that can be shown.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		"", "<html>", `{"status":"error","error":"\u001b[2J"}`, `{"status":"success","data":{"resultType":"vector","result":[{}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"0x1p-2"]}}`, `{"status":"success","data":{"resultType":"\u009b","result":null}}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		truth, err := readAnswer(http.StatusOK, strings.NewReader(body))
		if (truth == rollout.Unknown) != (err != nil) {
			t.Fatalf("%v, and the error %v", truth, err)
		}
		if err == nil && json.NewDecoder(strings.NewReader(body)).Decode(&json.RawMessage{}) != nil {
			t.Fatalf("%q is %v, and no JSON", body, truth)
		}
		if err != nil && (plaintext.Of(err.Error()) == "" || len(err.Error()) > 1000) {
			t.Fatalf("the reason is %q", err)
		}
	})
}

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		answer string
		want   rollout.Truth
		err    string
	}{
		"an element":         {200, `{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0"]}]}}`, rollout.True, ""},
		"no element":         {200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, rollout.False, ""},
		"one":                {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, rollout.True, ""},
		"zero":               {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"0"]}}`, rollout.False, ""},
		"no number":          {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`, rollout.False, ""},
		"a broken scalar":    {200, `{"status":"success","data":{"resultType":"scalar","result":[1,2]}}`, rollout.Unknown, "scalar"},
		"a broken vector":    {200, `{"status":"success","data":{"resultType":"vector","result":{}}}`, rollout.Unknown, "vector"},
		"a string":           {200, `{"status":"success","data":{"resultType":"string","result":[1,"x"]}}`, rollout.Unknown, `type "string"`},
		"a query that fails": {422, `{"status":"error","error":"unknown function"}`, rollout.Unknown, "422: unknown function"},
		"another server":     {200, `<html>`, rollout.Unknown, "not as Prometheus"},
		"another place":      {302, ``, rollout.Unknown, "302"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/base/api/v1/query" || r.FormValue("query") != "up > 0" {
				t.Errorf("%s: the request is %s %v", name, r.URL, r.Form)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(test.code)
			if _, err := w.Write([]byte(test.answer)); err != nil {
				t.Error(err)
			}
		}))
		got, err := runQuery(t.Context(), newHTTPClient(anywhere), v1alpha1.PrometheusGate{URL: server.URL + "/base", Query: "up > 0"})
		server.Close()
		if got != test.want || (test.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s is read as %v, %v", name, got, err)
		}
	}
	if got, err := runQuery(t.Context(), newHTTPClient(anywhere), v1alpha1.PrometheusGate{URL: "http://127.0.0.1:1", Query: "up"}); got != rollout.Unknown || err == nil {
		t.Errorf("a server that is not there says %v, %v", got, err)
	}
}

// The text of a server cannot control a terminal.
func TestWhatServersSayIsText(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"error","error":"\u001b[2J\u001b[Hall is well\n"}`)
	}))
	defer server.Close()
	var g gate
	for g.ask(t.Context(), server.Client(), v1alpha1.PrometheusGate{URL: server.URL, Query: "up"}, time.Unix(1000, 0)) {
	}
	if g.failure != "the server answers 200: \ufffd[2J\ufffd[Hall is well " {
		t.Errorf("the failure is %q", g.failure)
	}
}

// A slow server blocks nothing. Its last answer counts meanwhile if it is recent.
func TestSlowAnswers(t *testing.T) {
	answers := make(chan struct{})
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answers
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`)
	}))
	defer server.Close()
	defer close(answers)
	var g gate
	now := time.Unix(1000, 0)
	ask := func(after time.Duration) bool {
		now = now.Add(after)
		return g.ask(t.Context(), server.Client(), v1alpha1.PrometheusGate{URL: server.URL, Query: "up"}, now)
	}
	for _, step := range []struct {
		after time.Duration
		truth rollout.Truth // until the answer
	}{{0, rollout.Unknown}, {queryTime, rollout.True}, {2 * queryTime, rollout.Unknown}} {
		for range 2 {
			if !ask(step.after) || g.truth != step.truth {
				t.Fatalf("after %s: an answer is there, or %v counts", step.after, g.truth)
			}
			step.after = 0
		}
		answers <- struct{}{}
		for ask(0) {
		}
		if g.truth != rollout.True || g.failure != "" {
			t.Errorf("after %s: %v, %q", step.after, g.truth, g.failure)
		}
	}
	if len(asked) != 3 {
		t.Errorf("the server was asked %d times", len(asked))
	}
}
