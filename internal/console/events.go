package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// part is something that pages show and that changes as one.
type part string

// The parts. One Service is "service:NAMESPACE/NAME".
const (
	partCluster    part = "cluster"
	partServices   part = "services"
	partTraffic    part = "traffic"
	partDisruption part = "disruption"
	// partProxies is what Leases say, and what follows the time.
	partProxies part = "proxies"
	// partAnyService is each of the Services.
	partAnyService part = servicePrefix + "*"
)

const servicePrefix = "service:"

func partService(namespace, name string) part { return part(servicePrefix + namespace + "/" + name) }

// isOf reports whether a part is among some that have changed.
func (p part) isOf(changed []part) bool {
	anyService := strings.HasPrefix(string(p), servicePrefix) && slices.Contains(changed, partAnyService)
	return anyService || slices.Contains(changed, p)
}

// mostParts is how many parts a browser may ask to hear of, and mostListeners how many pages listen.
const (
	mostParts     = 8
	mostListeners = 100
)

type listeners struct {
	mu     sync.Mutex
	all    map[*listener]bool
	looked time.Time // at a page with traffic
}

type listener struct {
	parts   []part
	changed chan struct{} // with room for one: what has changed is asked for anew
}

func newListeners() *listeners { return &listeners{all: map[*listener]bool{}} }

// add has one listen, unless too many do.
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

// publish tells those that show one of the parts that it has changed. None waits for another.
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

// look notes that a page with such parts was asked for.
func (l *listeners) look(parts []part, now time.Time) {
	if !slices.Contains(parts, partTraffic) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looked = now
}

// looksFor is how long a page counts as looked at that does not listen.
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

// How often a browser is told of changes at most, and that the console still runs, and how long it may
// take to read that.
const (
	eventsApart = 500 * time.Millisecond
	aliveEvery  = 15 * time.Second
	eventWithin = 10 * time.Second
)

// events streams to a browser that what it shows has changed.
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
	// What changed since the page was made is in the next one.
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
