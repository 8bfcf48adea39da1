package inspect

import (
	"math"
	"testing"
)

// A month has 730 hours.
func TestCostOfAMonth(t *testing.T) {
	if got, want := MonthlyCost(1<<30, 0.02), 730*3600*0.02; math.Abs(got-want) > 1e-9 {
		t.Errorf("1 GiB a second costs %v a month, want %v", got, want)
	}
}
