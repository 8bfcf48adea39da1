package command

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// sampleTime is how long the quickest answer counts, before a slower one takes its place.
const sampleTime = 30 * time.Second

// Clock notes what time it is at the API server, which says so in each answer. It can be used concurrently.
type Clock struct {
	mu sync.Mutex
	// server and local are times of one moment, as exact as the quickest answer made them.
	server, local time.Time
	took          time.Duration
}

// Wrap makes a transport that notes the time of each answer.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		begun := time.Now()
		response, err := next.RoundTrip(request)
		if err != nil || strings.Contains(request.URL.Path, "/proxy/") {
			return response, err // the time is that of what answers behind it
		}
		// Answers of lists come in parts: this is when the first one was there.
		if date, wrong := http.ParseTime(response.Header.Get("Date")); wrong == nil {
			c.Note(date, begun, time.Since(begun))
		}
		return response, nil
	})
}

// Note notes the time of an answer to a request that begun at a time and took a while.
func (c *Clock) Note(date, begun time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.IsZero() || took < c.took || begun.Sub(c.local) > sampleTime {
		c.server, c.local, c.took = date, begun.Add(took/2), took
	}
}

// Read is the time of the API server, zero if it is not known, and that of this machine at the same moment.
func (c *Clock) Read() (server, local time.Time) {
	if c == nil {
		return server, local
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server, c.local
}

// Ahead is by how much this machine's clock is ahead of the API server's at the least, and less than zero if it is
// behind. It is zero while that is not known.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.IsZero() {
		return 0
	}
	// The server says whole seconds, and when it said so between the request and the answer is not known.
	ahead := c.local.Sub(c.server)
	return max(0, ahead-time.Second-c.took/2) + min(0, ahead+c.took/2)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
