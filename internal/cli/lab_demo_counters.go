package cli

import (
	"context"
	"slices"
	"time"

	"vicinity.dev/vicinity/internal/inspect"
)

// counters are what the proxies of all nodes count of the demo's Service. There are none
// without vicinity-proxy: nil counts nothing.
type counters struct {
	reader *clusterReader
	pods   []proxyPod
	// base is what they had counted at the beginning, and made how many connections there
	// were since. last is what they had counted when all that there were so far was.
	base, last []inspect.ProxyReading
	made       int64
}

// begin reads what was counted before.
func (c *counters) begin(ctx context.Context) error {
	if c == nil {
		return nil
	}
	var err error
	if c.pods, err = c.reader.proxies(ctx); err != nil {
		return err
	}
	c.base, err = c.reader.traffic(ctx, c.pods)
	c.last = c.base
	return err
}

// expect notes connections that are to be counted.
func (c *counters) expect(connections int64) {
	if c != nil {
		c.made += connections
	}
}

// Proxies look at open connections every 15 s. Without news for longer than that goes what
// there is.
const (
	countTime  = 40 * time.Second
	countPause = time.Second
)

// counted waits until all connections are counted, and is what was counted of them since it
// was called before, in each second, as if there had been as many as were measured. It is
// nil without vicinity-proxy.
func (c *counters) counted(ctx context.Context, m measurement) (*inspect.ServiceTraffic, error) {
	if c == nil {
		return nil, nil
	}
	for end := time.Now().Add(countTime); ; {
		now, err := c.reader.traffic(ctx, c.pods)
		if err != nil {
			return nil, err
		}
		all := countedBetween(c.base, now, time.Second)
		if int64(all.Connections+0.5) >= c.made || time.Now().After(end) {
			took := m.took()
			if tried := countedBetween(c.last, now, took); tried.Connections > 0 && m.result.Answered > 0 {
				took = time.Duration(float64(took) * tried.Connections * took.Seconds() / float64(m.result.Answered))
			}
			row := countedBetween(c.last, now, took)
			c.last = now
			return row, nil
		}
		if err := pause(ctx, countPause); err != nil {
			return nil, err
		}
	}
}

// countedBetween is what was counted of the Service from one reading to another, in each
// second of a time in which all of it happened.
func countedBetween(first, second []inspect.ProxyReading, took time.Duration) *inspect.ServiceTraffic {
	at := func(readings []inspect.ProxyReading, moment time.Time) []inspect.ProxyReading {
		moved := slices.Clone(readings)
		for i := range moved {
			moved[i].At = moment
		}
		return moved
	}
	var begun time.Time
	rates, _ := inspect.TrafficSince(at(first, begun), at(second, begun.Add(took)))
	traffic := inspect.TrafficOf(rates, demoNamespace, 0, 0)
	for i := range traffic.Services {
		if traffic.Services[i].Service == demoService {
			return &traffic.Services[i]
		}
	}
	return &inspect.ServiceTraffic{}
}
