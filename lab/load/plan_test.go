package load

import (
	"math"
	"net/netip"
	"testing"
	"time"
)

func TestPlansAreChecked(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Plan)
		want   string
	}{
		{name: "as it should be", change: func(*Plan) {}},
		{
			name: "no target", change: func(p *Plan) { p.Targets = nil },
			want: "targets is empty; it must hold at least one address and port, as 10.96.0.7:80",
		},
		{
			name: "no port", change: func(p *Plan) { p.Targets[0] = netip.MustParseAddrPort("10.0.0.1:0") },
			want: `targets holds "10.0.0.1:0"; each must be the IP address of a host and a port, as 10.96.0.7:80`,
		},
		{
			name: "any address", change: func(p *Plan) { p.Targets[0] = netip.MustParseAddrPort("[::]:80") },
			want: `targets holds "[::]:80"; each must be the IP address of a host and a port, as 10.96.0.7:80`,
		},
		{
			name: "protocol", change: func(p *Plan) { p.Protocol = "sctp" },
			want: `protocol "sctp" is unknown; it must be http, tcp or udp`,
		},
		{
			name: "no rate", change: func(p *Plan) { p.Rate = 0 },
			want: "rate 0 is out of range; it must be above 0 and at most 100000 requests per second",
		},
		{
			name: "rate that is no number", change: func(p *Plan) { p.Rate = math.NaN() },
			want: "rate NaN is out of range; it must be above 0 and at most 100000 requests per second",
		},
		{
			name: "duration", change: func(p *Plan) { p.Duration = -time.Second },
			want: "duration -1s is out of range; it must be from 1ns to 168h0m0s",
		},
		{
			name: "timeout", change: func(p *Plan) { p.Timeout = 2 * time.Hour },
			want: "timeout 2h0m0s is out of range; it must be from 1ns to 1h0m0s",
		},
		{
			name: "interval", change: func(p *Plan) { p.Interval = time.Millisecond },
			want: "interval 1ms is out of range; it must be from 10ms to 168h0m0s",
		},
		{
			name: "concurrency", change: func(p *Plan) { p.Concurrency = -1 },
			want: "concurrency -1 is out of range; it must be from 1 to 10000",
		},
		{
			name: "nothing to send", change: func(p *Plan) { p.Rate = 0.5 },
			want: "duration 1s is too short for a rate of 0.5 per second; it must hold at least one request",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := Plan{Targets: []netip.AddrPort{netip.MustParseAddrPort("10.96.0.7:80")}, Rate: 10, Duration: time.Second}
			test.change(&plan)
			got := ""
			if err := plan.Validate(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestRequestsAreCountedAsPeopleDo(t *testing.T) {
	for _, test := range []struct {
		rate     float64
		duration time.Duration
		want     int64
	}{
		{0.1, 10 * time.Second, 1},
		{1000, time.Second, 1000},
		{33.3, 10 * time.Second, 333},
		{200, 1500 * time.Millisecond, 300},
		{3, 900 * time.Millisecond, 2},
	} {
		if got := (Plan{Rate: test.rate, Duration: test.duration}).requests(); got != test.want {
			t.Errorf("%v per second for %v are %d requests, want %d", test.rate, test.duration, got, test.want)
		}
	}
}
