package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	queryTimeout = 5 * time.Second
	// queryTime is how long an answer counts.
	queryTime = 10 * time.Second
	// patience is how long a sync waits for an answer, and pendingTime after how long it looks for it again.
	patience, pendingTime = 100 * time.Millisecond, time.Second
	maxAnswer             = 1 << 20
)

// newHTTPClient makes a client that goes only where a spec says.
func newHTTPClient() *http.Client {
	return &http.Client{Timeout: queryTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// gate is the last answer to the query of a health gate.
type gate struct {
	of      v1alpha1.PrometheusGate
	at      time.Time
	truth   rollout.Truth
	said    string // why it is not known
	pending chan reply
}

type reply struct {
	truth rollout.Truth
	err   error
}

// ask has the answer to a query not older than queryTime. A server that is slow is not waited for, since other rollouts would
// be kept waiting: its last answer counts meanwhile, unless that is old. It reports whether one is still to come.
func (g *gate) ask(ctx context.Context, c *http.Client, query v1alpha1.PrometheusGate, now time.Time) (pending bool) {
	if g.of != query {
		*g = gate{of: query}
	}
	if g.pending == nil {
		if !g.at.IsZero() && now.Sub(g.at) < queryTime {
			return false
		}
		if now.Sub(g.at) >= 2*queryTime {
			g.truth, g.said = rollout.Unknown, "the server has not answered yet"
		}
		g.at, g.pending = now, make(chan reply, 1)
		go func(to chan<- reply) {
			truth, err := runQuery(context.WithoutCancel(ctx), c, query)
			to <- reply{truth, err}
		}(g.pending)
	}
	select {
	case a := <-g.pending:
		g.pending, g.truth, g.said = nil, a.truth, ""
		if a.err != nil {
			g.said = a.err.Error()
		}
		return false
	case <-time.After(patience):
		return true
	}
}

// runQuery asks a Prometheus server. An answer that is not understood is neither true nor false. Errors have
// nothing of what the server says but its own message.
func runQuery(ctx context.Context, c *http.Client, query v1alpha1.PrometheusGate) (rollout.Truth, error) {
	server, err := url.Parse(query.URL)
	if err != nil {
		return rollout.Unknown, errors.New("spec.healthGate.prometheus.url is not a URL")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.JoinPath("api/v1/query").String(),
		strings.NewReader(url.Values{"query": {query.Query}}.Encode()))
	if err != nil {
		return rollout.Unknown, fmt.Errorf("the server cannot be asked: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.Do(request)
	if err != nil {
		return rollout.Unknown, fmt.Errorf("the server does not answer: %w", errors.Unwrap(err))
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer)
	switch {
	case err != nil:
		return rollout.Unknown, fmt.Errorf("the server answers %d, and not as Prometheus does", response.StatusCode)
	case answer.Status != "success":
		return rollout.Unknown, fmt.Errorf("the server answers %d: %.200s", response.StatusCode, answer.Error)
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
