package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/inspect"
)

// counters are what the proxies of all nodes count of the demo's Service, by "vicinity
// status --traffic". There are none without vicinity-proxy: nil counts nothing.
type counters struct {
	read func(context.Context) (inspect.ProxyReading, error)
	// base is what they had counted at the beginning, and made how many connections there
	// were since. last is what they had counted when all that there were so far was.
	base, last inspect.ProxyReading
	made       int64
}

// newCounters reads through the program vicinity beside this one.
func newCounters(kubeconfig string) (*counters, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), "vicinity")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("the demo needs the program vicinity beside %s: %w", self, err)
	}
	return &counters{read: func(ctx context.Context) (inspect.ProxyReading, error) {
		cmd := exec.CommandContext(ctx, program, "status", "--traffic", "--kubeconfig", kubeconfig, "--namespace", demoNamespace, "--output", "json")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err != nil {
			return inspect.ProxyReading{}, fmt.Errorf("reading what was counted: %w: %s", err, command.OneLine(errors.New(stderr.String())))
		}
		return readingOf(text)
	}}, nil
}

// readingOf is what all proxies have counted, as if one had, from the output of "vicinity
// status --traffic".
func readingOf(text []byte) (inspect.ProxyReading, error) {
	var traffic inspect.Traffic
	if err := json.Unmarshal(text, &traffic); err != nil {
		return inspect.ProxyReading{}, fmt.Errorf("reading what was counted: %w", err)
	}
	counts := map[inspect.TrafficKey]inspect.TrafficCount{}
	for i := range traffic.Services {
		s := &traffic.Services[i]
		for _, r := range s.Routes {
			key := inspect.TrafficKey{Namespace: s.Namespace, Service: s.Service, From: r.From, To: r.To}
			counts[key] = inspect.TrafficCount{Connections: r.Connections, Request: r.RequestBytes, Reply: r.ReplyBytes}
		}
	}
	return inspect.ProxyReading{Counts: counts}, nil
}

// begin reads what was counted before.
func (c *counters) begin(ctx context.Context) error {
	if c == nil {
		return nil
	}
	var err error
	c.base, err = c.read(ctx)
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
		now, err := c.read(ctx)
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
		if err := command.Pause(ctx, countPause); err != nil {
			return nil, err
		}
	}
}

// countedBetween is what was counted of the Service from one reading to another, in each
// second of a time in which all of it happened.
func countedBetween(first, second inspect.ProxyReading, took time.Duration) *inspect.ServiceTraffic {
	first.At, second.At = time.Time{}, time.Time{}.Add(took)
	rates, _ := inspect.TrafficSince([]inspect.ProxyReading{first}, []inspect.ProxyReading{second})
	traffic := inspect.TrafficOf(rates, demoNamespace, 0, 0)
	for i := range traffic.Services {
		if traffic.Services[i].Service == demoService {
			return &traffic.Services[i]
		}
	}
	return &inspect.ServiceTraffic{}
}
