package meter

import (
	"context"
	"errors"
	"testing"
	"time"
)

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
