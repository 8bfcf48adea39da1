package meter

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestCPU(t *testing.T) {
	stat := "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 150 50 7 8 20 0 9 0 100 1 2"
	for field, want := range map[int]time.Duration{Own: 2 * time.Second, Children: 150 * time.Millisecond} {
		if got, err := parseCPU(stat, field); err != nil || got != want {
			t.Errorf("field %d: %s, %v, want %s", field, got, err, want)
		}
	}
	for _, bad := range []string{"", "7 (a) S 1 7", "7 (a) S 1 7 7 0 -1 4194304 1 2 3 4 x 50 7 8"} {
		if got, err := parseCPU(bad, Own); err == nil {
			t.Errorf("%q is read as %s", bad, got)
		}
	}
}

func TestMemory(t *testing.T) {
	status := "Name:\ta\nVmPeak:\t  9 kB\nVmHWM:\t  2048 kB\nVmRSS:\t   1024 kB\n"
	for field, want := range map[string]int64{Peak: 2 << 20, Resident: 1 << 20} {
		if got, err := parseMemory(status, field); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", field, got, err, want)
		}
	}
	for _, bad := range []string{"VmPeak:\t9 kB\n", "VmHWM:\tmuch kB\n"} {
		if got, err := parseMemory(bad, Peak); err == nil {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for _, test := range []struct {
		times []time.Duration
		share float64
		want  time.Duration
	}{
		{nil, 0.5, 0},
		{hundred[:1], 0.5, 100},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred[97:], 0.5, 2},
	} {
		if got := Quantile(test.times, test.share); got != test.want {
			t.Errorf("%g of %d times: %d, want %d", test.share, len(test.times), got, test.want)
		}
	}
}

func TestParallelWorkEnds(t *testing.T) {
	done := make([]bool, 300)
	if err := InParallel(t.Context(), 20, len(done), func(_ context.Context, i int) error { done[i] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range done {
		if !done[i] {
			t.Errorf("%d is not done", i)
		}
	}
	broken := errors.New("broken")
	err := InParallel(t.Context(), 20, len(done), func(_ context.Context, i int) error {
		if i == 5 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
