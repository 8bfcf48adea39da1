package load

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"time"
)

// Protocol is the protocol of requests.
type Protocol string

// The protocols: an HTTP/1.1 GET, a line over TCP, a datagram.
const (
	HTTP Protocol = "http"
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
)

// Plan says what to send.
type Plan struct {
	// Targets are used in turn: one for a cluster IP, several for endpoints or node ports.
	Targets  []netip.AddrPort
	Protocol Protocol // default HTTP
	// Service is the Service that must answer, as name or namespace/name; empty means any.
	Service string
	// Rate is the requests per second of all sources together.
	Rate     float64
	Duration time.Duration
	// Patient sends every request, however late, to measure which endpoints answer and not how fast.
	// The rate is then a maximum.
	Patient bool
	// Concurrency limits the requests in flight of each source; default 64.
	Concurrency int
	// Timeout covers one request including opening the connection; default 5 s.
	Timeout time.Duration
}

const (
	maxRate        = 100_000
	maxDuration    = 7 * 24 * time.Hour
	maxConcurrency = 10_000
	maxTimeout     = time.Hour
)

func (p Plan) withDefaults() Plan {
	p.Protocol, p.Concurrency = cmp.Or(p.Protocol, HTTP), cmp.Or(p.Concurrency, 64)
	p.Timeout = cmp.Or(p.Timeout, 5*time.Second)
	return p
}

// Validate checks a plan. Fields with a default may be empty.
func (p Plan) Validate() error {
	p = p.withDefaults()
	if len(p.Targets) == 0 {
		return fmt.Errorf("targets is empty; it must hold at least one address and port, as 10.96.0.7:80")
	}
	for _, target := range p.Targets {
		if addr := target.Addr(); !target.IsValid() || target.Port() == 0 || addr.IsUnspecified() || addr.IsMulticast() {
			return fmt.Errorf("targets holds %q; each must be the IP address of a host and a port, as 10.96.0.7:80", target)
		}
	}
	switch p.Protocol {
	case HTTP, TCP, UDP:
	default:
		return fmt.Errorf("protocol %q is unknown; it must be http, tcp or udp", p.Protocol)
	}
	if !(p.Rate > 0 && p.Rate <= maxRate) {
		return fmt.Errorf("rate %v is out of range; it must be above 0 and at most %d requests per second", p.Rate, maxRate)
	}
	for _, d := range []struct {
		name       string
		value, top time.Duration
	}{{"duration", p.Duration, maxDuration}, {"timeout", p.Timeout, maxTimeout}} {
		if d.value <= 0 || d.value > d.top {
			return fmt.Errorf("%s %v is out of range; it must be above 0 and at most %v", d.name, d.value, d.top)
		}
	}
	if p.Concurrency < 1 || p.Concurrency > maxConcurrency {
		return fmt.Errorf("concurrency %d is out of range; it must be from 1 to %d", p.Concurrency, maxConcurrency)
	}
	if p.requests() == 0 {
		return fmt.Errorf("duration %v is too short for a rate of %v per second; it must hold at least one request", p.Duration, p.Rate)
	}
	return nil
}

func (p Plan) requests() int64 {
	const rounding = 1e-6 // 0.1 per second for 10 s must be one, despite errors of float64
	return int64(math.Floor(p.Rate*p.Duration.Seconds() + rounding))
}
