package cli

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// serverClock notes what time it is at the API server, which says so in each answer. It can be used
// concurrently.
type serverClock struct {
	mu sync.Mutex
	// server and local are times of one moment, as exact as the quickest answer made them.
	server, local time.Time
	took          time.Duration
}

// wrap makes a transport that notes the time of each answer.
func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		begun := time.Now()
		response, err := next.RoundTrip(request)
		if err != nil || strings.Contains(request.URL.Path, "/proxy/") {
			return response, err // the time is that of what answers behind it
		}
		// Answers of lists come in parts: this is when the first one was there.
		if date, wrong := http.ParseTime(response.Header.Get("Date")); wrong == nil {
			c.note(date, begun, time.Since(begun))
		}
		return response, nil
	})
}

func (c *serverClock) note(date, begun time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.IsZero() || took < c.took {
		c.server, c.local, c.took = date, begun.Add(took/2), took
	}
}

// read is the time of the API server, zero if it is not known, and that of this machine at the same moment.
func (c *serverClock) read() (server, local time.Time) {
	if c == nil {
		return server, local
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server, c.local
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
