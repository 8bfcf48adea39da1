package program

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"vicinity.dev/vicinity/lab/load"
)

// behaviour is how an echo behaves, which can change while it runs, and its counters.
type behaviour struct {
	mu sync.Mutex

	delay        time.Duration
	ready, live  bool
	unreadyAfter int64 // answers left until it fails readiness; 0 is never
	crashes      bool
	crashCode    int
	crashAfter   int64 // answers left until it crashes; 0 is now
	terminating  bool
	asked        time.Time // last

	stats Stats

	crash chan struct{} // closed when it is to crash
}

// Stats are the counters of an echo, as JSON of /stats.
type Stats struct {
	HTTP     int64 `json:"http"` // answers
	TCP      int64 `json:"tcp"`
	UDP      int64 `json:"udp"`
	InFlight int64 `json:"inFlight"`
	Dropped  int64 `json:"dropped"` // datagrams, when too many wait for their answer
	Ready    bool  `json:"ready"`
	Draining bool  `json:"draining"`
}

func newBehaviour() *behaviour {
	return &behaviour{ready: true, live: true, crash: make(chan struct{})}
}

type change func(*behaviour)

// control is a setting of an echo: a flag, a variable, or a parameter of POST /control.
type control struct {
	name, usage string
	parse       func(value string) (change, error)
}

// controls are all settings in the order in which they are applied.
func controls() []control {
	return []control{
		{"delay", "time before each answer", func(value string) (change, error) {
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return nil, fmt.Errorf("delay %q is no time; it must be like 50ms, or 0", value)
			}
			return func(b *behaviour) { b.delay = d }, nil
		}},
		{"ready", "whether /readyz succeeds; true if not told otherwise", func(value string) (change, error) {
			ready, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf("ready %q is unknown; it must be true or false", value)
			}
			return func(b *behaviour) { b.ready, b.unreadyAfter = ready, 0 }, nil
		}},
		{"live", "whether /livez succeeds; true if not told otherwise", func(value string) (change, error) {
			live, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf("live %q is unknown; it must be true or false", value)
			}
			return func(b *behaviour) { b.live = live }, nil
		}},
		{"unready-after", "number of answers after which /readyz fails; 0 is never", func(value string) (change, error) {
			n, err := parseCount("unready-after", value)
			return func(b *behaviour) { b.unreadyAfter = n }, err
		}},
		{"crash-after", "number of answers after which crash happens; 0 is at once", func(value string) (change, error) {
			n, err := parseCount("crash-after", value)
			return func(b *behaviour) { b.crashAfter = n }, err
		}},
		{"crash", "exit code to crash with; not to crash if not told otherwise", func(value string) (change, error) {
			code, err := strconv.Atoi(value)
			if err != nil || code < 0 || code > 255 {
				return nil, fmt.Errorf("crash %q is no exit code; it must be a number from 0 to 255", value)
			}
			return func(b *behaviour) { b.crashes, b.crashCode = true, code }, nil
		}},
	}
}

func parseCount(name, value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s %q is no number of answers; it must be 0 or more", name, value)
	}
	return n, nil
}

func (b *behaviour) apply(changes ...change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range changes {
		c(b)
	}
	b.crashIfDue()
}

// crashIfDue closes the channel once; the caller holds the lock.
func (b *behaviour) crashIfDue() {
	if !b.crashes || b.crashAfter > 0 {
		return
	}
	select {
	case <-b.crash:
	default:
		close(b.crash)
	}
}

// begin is called before an answer, and returns the delay.
func (b *behaviour) begin() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.InFlight++
	b.asked = time.Now()
	return b.delay
}

// quiet is for how long nothing has been asked.
func (b *behaviour) quiet() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stats.InFlight > 0 {
		return 0
	}
	return time.Since(b.asked)
}

// end is called after an answer, or if none was possible.
func (b *behaviour) end(protocol load.Protocol, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.InFlight--
	if !answered {
		return
	}
	switch protocol {
	case load.HTTP:
		b.stats.HTTP++
	case load.TCP:
		b.stats.TCP++
	case load.UDP:
		b.stats.UDP++
	}
	if b.unreadyAfter > 0 {
		if b.unreadyAfter--; b.unreadyAfter == 0 {
			b.ready = false
		}
	}
	if b.crashes && b.crashAfter > 0 {
		b.crashAfter--
	}
	b.crashIfDue()
}

func (b *behaviour) countDropped() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Dropped++
}

func (b *behaviour) snapshot() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Ready = b.ready && !b.terminating
	s.Draining = b.terminating
	return s
}

func (b *behaviour) isLive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

func (b *behaviour) exitCode() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.crashCode
}
