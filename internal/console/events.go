package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// part is a section of pages that changes as a whole.
type part string

// The part of one Service is "service:NAMESPACE/NAME".
const (
	partCluster    part = "cluster"
	partServices   part = "services"
	partTraffic    part = "traffic"
	partDisruption part = "disruption"
	// partProxies depends on Leases and the time.
	partProxies part = "proxies"
	// partAnyService is every Service.
	partAnyService part = servicePrefix + "*"
)

const servicePrefix = "service:"

func partService(namespace, name string) part { return part(servicePrefix + namespace + "/" + name) }

func (p part) isOf(changed []part) bool {
	anyService := strings.HasPrefix(string(p), servicePrefix) && slices.Contains(changed, partAnyService)
	return anyService || slices.Contains(changed, p)
}

// Limits of parts for one page, and of pages that follow the cluster.
const (
	mostParts     = 8
	mostListeners = 100
)

type listeners struct {
	mu     sync.Mutex
	all    map[*listener]bool
	looked time.Time // when a page with traffic was last requested
}

type listener struct {
	parts   []part
	changed chan struct{} // has room for one: a page requests all changes at once
}

func newListeners() *listeners { return &listeners{all: map[*listener]bool{}} }

// add adds a listener, unless there are too many.
func (l *listeners) add(parts []part) (one *listener, found bool) {
	one = &listener{parts: parts, changed: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= mostListeners {
		return nil, false
	}
	l.all[one] = true
	return one, true
}

func (l *listeners) remove(one *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, one)
}

// publish notifies the listeners of changed parts. It never blocks.
func (l *listeners) publish(parts ...part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.all {
		if !slices.ContainsFunc(one.parts, func(p part) bool { return p.isOf(parts) }) {
			continue
		}
		select {
		case one.changed <- struct{}{}:
		default:
		}
	}
}

// look notes a request for a page with these parts.
func (l *listeners) look(parts []part, now time.Time) {
	if !slices.Contains(parts, partTraffic) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looked = now
}

// looksFor is how long a page without a stream counts as open.
const looksFor = 2 * time.Minute

func (l *listeners) anyone(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.all {
		if slices.Contains(one.parts, partTraffic) {
			return true
		}
	}
	return now.Sub(l.looked) < looksFor
}

// Intervals of notifications and of signs of life, and the timeout for writing one.
const (
	eventsApart = 500 * time.Millisecond
	aliveEvery  = 15 * time.Second
	eventWithin = 10 * time.Second
)

// events streams to a browser which parts have changed.
func (c *console) events(w http.ResponseWriter, r *http.Request) {
	var parts []part
	for _, name := range r.URL.Query()["part"] {
		parts = append(parts, part(name))
	}
	if len(parts) == 0 || len(parts) > mostParts {
		c.fail(w, r, badRequestf("part is given %d times; it must be from 1 to %d times", len(parts), mostParts))
		return
	}
	one, found := c.listeners.add(parts)
	if !found {
		c.fail(w, r, &requestError{http.StatusServiceUnavailable, fmt.Sprintf("%d pages are open, which is the most that follow the cluster; close some", mostListeners)})
		return
	}
	defer c.listeners.remove(one)
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	// The next page has the changes since this page was rendered.
	event := "event: changed\ndata: {}\n\n"
	for {
		if err := stream.SetWriteDeadline(time.Now().Add(eventWithin)); err != nil {
			return
		}
		if _, err := fmt.Fprint(w, event); err != nil {
			return
		}
		if err := stream.Flush(); err != nil {
			return
		}
		apart := time.NewTimer(eventsApart)
		select {
		case <-r.Context().Done():
			apart.Stop()
			return
		case <-apart.C:
		}
		select {
		case <-r.Context().Done():
			return
		case <-one.changed:
			event = "event: changed\ndata: {}\n\n"
		case <-alive.C:
			event = ": alive\n\n"
		}
	}
}
