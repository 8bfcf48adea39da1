package command

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// sampleTime is how long the quickest answer counts before a slower one replaces it.
const sampleTime = 30 * time.Second

// Clock reads the time of the API server from the Date header of its answers. It is safe for concurrent use.
type Clock struct {
	mu sync.Mutex
	// server and local are times of the same moment, by the quickest answer.
	server, local time.Time
	took          time.Duration
}

// Wrap returns a transport that notes the time of each answer.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		begun := time.Now()
		response, err := next.RoundTrip(request)
		if err != nil || strings.Contains(request.URL.Path, "/proxy/") {
			return response, err // the header is that of the server behind the proxy
		}
		// A list arrives in parts: this is the time of the first part.
		if date, wrong := http.ParseTime(response.Header.Get("Date")); wrong == nil {
			c.Note(date, begun, time.Since(begun))
		}
		return response, nil
	})
}

// Note records the date of an answer to a request that began at a time and took a while.
func (c *Clock) Note(date, begun time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.IsZero() || took < c.took || begun.Sub(c.local) > sampleTime {
		c.server, c.local, c.took = date, begun.Add(took/2), took
	}
}

// Read returns the time of the API server and that of this machine at the same moment. Both are zero if unknown.
func (c *Clock) Read() (server, local time.Time) {
	if c == nil {
		return server, local
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server, c.local
}

// Ahead returns by how much this machine's clock is at least ahead of the API server's. It is negative if the clock is behind, and
// zero if unknown.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.IsZero() {
		return 0
	}
	// The header has whole seconds, of an unknown moment between the request and the answer.
	ahead := c.local.Sub(c.server)
	return max(0, ahead-time.Second-c.took/2) + min(0, ahead+c.took/2)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
