package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// sampleOutput is an output of dnsperf 2.10 with a rate.
const sampleOutput = `DNS Performance Testing Tool
Version 2.10.0

[Status] Command line: dnsperf -s 127.0.0.1 -Q 3000 -v
[Status] Sending queries (to 127.0.0.1:5399)
> NXDOMAIN a.example A 0.000297
> NOERROR b.example A 0.000120
> T d.example A
> NOERROR c.example AAAA 0.001202
[Timeout] Query timed out: msg id 3
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         400
  Queries completed:    399 (99.75%)
  Queries lost:         1 (0.25%)

  Response codes:       NOERROR 300 (75.19%), NXDOMAIN 99 (24.81%)
  Average packet size:  request 27, response 27
  Run time (s):         2.000312
  Queries per second:   2999.532073

  Average Latency (s):  0.000389 (min 0.000021, max 0.022901)
  Latency StdDev (s):   0.002057
`

func TestReadAnswers(t *testing.T) {
	a, err := readAnswers(strings.NewReader(sampleOutput))
	if err != nil {
		t.Fatal(err)
	}
	if a.sent != 400 || a.completed != 399 || a.lost != 1 || a.perSecond != 2999.532073 {
		t.Errorf("answers %+v", a)
	}
	if want := map[string]int{"NOERROR": 300, "NXDOMAIN": 99}; !maps.Equal(a.codes, want) {
		t.Errorf("codes are %v, want %v", a.codes, want)
	}
	if len(a.latencies) != 3 || a.p99() != 1202*time.Microsecond {
		t.Errorf("latencies are %v", a.latencies)
	}
	if err := a.check(); err != nil {
		t.Error(err)
	}
}
