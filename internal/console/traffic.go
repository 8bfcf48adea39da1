package console

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"vicinity.dev/vicinity/internal/inspect"
)

// trafficMeter reads the counts of proxies while a page with traffic is open.
type trafficMeter struct {
	cluster   Cluster
	every     time.Duration
	listeners *listeners

	mu       sync.Mutex
	readings [][]inspect.ProxyReading // oldest first
	measured measured
}

// measured is the traffic between the oldest and the newest kept reading.
type measured struct {
	// Traffic is empty until proxies were read twice.
	inspect.Traffic
	// At is the time of the newest reading, or zero.
	At time.Time `json:"at,omitzero"`
	// Off says why nothing is measured.
	Off string `json:"off,omitempty"`

	byName map[string]*inspect.ServiceTraffic
}

// of returns the traffic of a Service, or nil.
func (m *measured) of(namespace, name string) *inspect.ServiceTraffic {
	return m.byName[namespace+"/"+name]
}

// keptReadings is the number of readings; values cover the time between the first and the last.
const keptReadings = 5

// Reading all proxies takes at most one part in askingRests of the time, so a large cluster is read
// less often.
const askingRests = 3

func (t *trafficMeter) newest() measured {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.measured
}

func (t *trafficMeter) run(ctx context.Context) {
	if t.every == 0 {
		t.mu.Lock()
		t.measured.Off = "measuring is off (--traffic-interval 0)"
		t.mu.Unlock()
		return
	}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		began := time.Now()
		wait := min(t.every, time.Second) // until a page is opened
		if t.listeners.anyone(began) {
			t.measure(ctx)
			wait = max(t.every, askingRests*time.Since(began))
		} else {
			t.forget()
		}
		next.Reset(wait)
	}
}

// forget drops old readings, which say nothing about the time when a page is opened again.
func (t *trafficMeter) forget() {
	t.readings = nil
	t.mu.Lock()
	t.measured = measured{}
	t.mu.Unlock()
}

// measure reads all proxies once.
func (t *trafficMeter) measure(ctx context.Context) {
	readings, notKnown, err := t.cluster.Traffic(ctx)
	if ctx.Err() != nil {
		return
	}
	m := measured{}
	switch {
	case err != nil:
		m.Off = err.Error()
		t.readings = nil
	default:
		t.readings = append(t.readings, readings)
		t.readings = t.readings[max(0, len(t.readings)-keptReadings):]
		first := t.readings[0]
		if len(t.readings) > 1 {
			rates, leftOut := inspect.TrafficSince(first, readings)
			if len(leftOut) > 0 {
				notKnown = append(notKnown, fmt.Sprintf("vicinity-proxy has answered only once on %s, so the traffic from there is missing", inspect.NodeNames(leftOut)))
			}
			m = trafficOf(rates, latest(readings).Sub(latest(first)))
		}
		m.NotKnown = append(slices.Clip(m.NotKnown), notKnown...)
	}
	t.mu.Lock()
	t.measured = m
	t.mu.Unlock()
	t.listeners.publish(partTraffic)
}

func trafficOf(rates []inspect.ProxyReading, over time.Duration) measured {
	m := measured{Traffic: inspect.TrafficOf(rates, "", over, 0), At: latest(rates), byName: map[string]*inspect.ServiceTraffic{}}
	for i := range m.Services {
		service := &m.Services[i]
		m.byName[service.Namespace+"/"+service.Service] = service
	}
	return m
}

// latest returns the time of the newest reading.
func latest(readings []inspect.ProxyReading) (at time.Time) {
	for i := range readings {
		if readings[i].At.After(at) {
			at = readings[i].At
		}
	}
	return at
}
