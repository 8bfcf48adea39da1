package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	queryTimeout = 5 * time.Second
	// queryTime is how long an answer counts.
	queryTime = 10 * time.Second
	// answerWait is how long a sync waits for an answer, and pendingTime when it looks for the answer again.
	answerWait, pendingTime = 100 * time.Millisecond, time.Second
	maxAnswer               = 1 << 20
)

// maxHeader bounds the header of an answer.
const maxHeader = 16 << 10

// newHTTPClient makes a client that connects only to the URL of a spec, if that is allowed. It uses no proxy and follows no redirects. It
// keeps no connections, because a spec that changes all the time would leave many.
func newHTTPClient(allowed func(netip.Addr) error) *http.Client {
	dialer := &net.Dialer{Timeout: queryTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return allowed(at.Addr().Unmap())
	}}
	return &http.Client{
		Timeout:       queryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader},
	}
}

// metadata are addresses of cloud metadata services, which hand out credentials of nodes, beyond the link-local ones.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS, by IPv6
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud, by IPv6
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
}

// translated are the prefixes of NAT64. The last four bytes are an IPv4 address (RFC 6052 and RFC 8215).
var translated = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}

// notOfTheNode refuses addresses of the controller itself and of services on every node, such as cloud metadata: an author of rollouts can
// make the controller connect to any URL. It checks the resolved address.
func notOfTheNode(address netip.Addr) error {
	holds := func(p netip.Prefix) bool { return p.Contains(address.WithZone("")) }
	if slices.ContainsFunc(translated, holds) {
		bytes := address.As16()
		if err := notOfTheNode(netip.AddrFrom4([4]byte(bytes[12:]))); err != nil {
			return fmt.Errorf("%w, also behind the NAT64 of %s", err, address)
		}
	}
	if address.IsLoopback() || address.IsUnspecified() || address.IsLinkLocalUnicast() || address.IsMulticast() || slices.ContainsFunc(metadata, holds) {
		return fmt.Errorf("spec.healthGate.prometheus.url leads to %s: a loopback, link-local or multicast address, or that of a cloud's metadata, is not allowed", address)
	}
	return nil
}

// gate is the last answer to the query of a health gate.
type gate struct {
	of      v1alpha1.PrometheusGate
	at      time.Time
	truth   rollout.Truth
	failure string // why the truth is unknown
	pending chan reply
}

type reply struct {
	truth rollout.Truth
	err   error
}

// ask keeps the answer to a query not older than queryTime. It does not wait for a slow server, which would delay other rollouts: the last
// answer counts meanwhile, unless it is old. It reports whether an answer is pending.
func (g *gate) ask(ctx context.Context, c *http.Client, query v1alpha1.PrometheusGate, now time.Time) (pending bool) {
	if g.of != query {
		*g = gate{of: query}
	}
	if g.pending == nil {
		if !g.at.IsZero() && now.Sub(g.at) < queryTime {
			return false
		}
		if now.Sub(g.at) >= 2*queryTime {
			g.truth, g.failure = rollout.Unknown, "the server has not answered yet"
		}
		g.at, g.pending = now, make(chan reply, 1)
		go func(to chan<- reply) {
			truth, err := runQuery(context.WithoutCancel(ctx), c, query)
			to <- reply{truth, err}
		}(g.pending)
	}
	select {
	case a := <-g.pending:
		g.pending, g.truth, g.failure = nil, a.truth, ""
		if a.err != nil {
			g.failure = plaintext.Of(a.err.Error()) // the server controls a part of the text
		}
		return false
	case <-time.After(answerWait):
		return true
	}
}

// runQuery asks a Prometheus server. An unreadable answer is neither true nor false. Of the server's answer, errors contain only its error
// message.
func runQuery(ctx context.Context, c *http.Client, query v1alpha1.PrometheusGate) (rollout.Truth, error) {
	server, err := url.Parse(query.URL)
	if err != nil {
		return rollout.Unknown, errors.New("spec.healthGate.prometheus.url is not a URL")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.JoinPath("api/v1/query").String(),
		strings.NewReader(url.Values{"query": {query.Query}}.Encode()))
	if err != nil {
		return rollout.Unknown, fmt.Errorf("the request cannot be made: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.Do(request)
	if err != nil {
		return rollout.Unknown, fmt.Errorf("the server does not answer: %w", errors.Unwrap(err))
	}
	defer func() { _ = response.Body.Close() }()
	return readAnswer(response.StatusCode, response.Body)
}

func readAnswer(code int, body io.Reader) (rollout.Truth, error) {
	var answer struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&answer)
	switch {
	case err != nil:
		return rollout.Unknown, fmt.Errorf("the server answers %d, but not as Prometheus does", code)
	case answer.Status != "success":
		return rollout.Unknown, fmt.Errorf("the server answers %d: %.200s", code, answer.Error)
	}
	return truthOf(answer.Data.ResultType, answer.Data.Result)
}

// truthOf reads a result: a scalar is true if it is not 0, a vector if it has an element.
func truthOf(kind string, result json.RawMessage) (rollout.Truth, error) {
	switch kind {
	case "vector":
		var elements []json.RawMessage
		if err := json.Unmarshal(result, &elements); err != nil {
			return rollout.Unknown, errors.New("the vector in the server's answer cannot be read")
		}
		return truth(len(elements) > 0), nil
	case "scalar":
		var pair [2]any // the time, and the number as a string
		err := json.Unmarshal(result, &pair)
		text, isText := pair[1].(string)
		number, bad := strconv.ParseFloat(text, 64)
		if err != nil || !isText || bad != nil {
			return rollout.Unknown, errors.New("the scalar in the server's answer cannot be read")
		}
		return truth(number != 0 && number == number), nil // NaN is not true
	}
	return rollout.Unknown, fmt.Errorf("the query has a result of type %.20q; a vector or a scalar is needed", kind)
}

func truth(is bool) rollout.Truth {
	if is {
		return rollout.True
	}
	return rollout.False
}
