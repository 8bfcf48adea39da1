package main

import (
	"testing"
	"time"
)

func TestKernelIsRead(t *testing.T) {
	stat := "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 150 50 7 8 20 0 9 0 100 1 2"
	if got, err := parseCPU(stat); err != nil || got != 2*time.Second {
		t.Errorf("CPU %s, %v", got, err)
	}
	for _, bad := range []string{"", "7 (a) S 1 7", "7 (a) S 1 7 7 0 -1 4194304 1 2 3 4 x 50 7 8"} {
		if got, err := parseCPU(bad); err == nil {
			t.Errorf("%q is read as %s", bad, got)
		}
	}
	if got, err := parsePeak("Name:\ta\nVmPeak:\t  9 kB\nVmHWM:\t  2048 kB\n"); err != nil || got != 2<<20 {
		t.Errorf("memory %d, %v", got, err)
	}
	for _, bad := range []string{"VmPeak:\t9 kB\n", "VmHWM:\tmuch kB\n"} {
		if got, err := parsePeak(bad); err == nil {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
}

func TestWritesAreCounted(t *testing.T) {
	metrics := `# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="h",method="GET"} 100
rest_client_requests_total{code="200",host="h",method="PATCH"} 1.5e+03
rest_client_requests_total{code="409",host="h",method="POST"} 2
other_requests_total{method="PATCH"} 9
`
	if got, err := countWrites(metrics); err != nil || got != 1502 {
		t.Errorf("%d writes, %v", got, err)
	}
	for _, bad := range []string{"", "rest_client_requests_total{method=\"PUT\"} many\n"} {
		if got, err := countWrites(bad); err == nil {
			t.Errorf("%q is counted as %d", bad, got)
		}
	}
}
