package explain_test

import (
	"math"
	"testing"

	"vicinity.dev/vicinity/internal/explain"
)

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 39273145: "39,273,145",
		-1: "-1", -123: "-123", -1234: "-1,234", -123456: "-123,456", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		if got := explain.Thousands(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
	if got := explain.Count(1, "case", "cases") + explain.Count(2000, "case", "cases"); got != "1 case2,000 cases" {
		t.Error(got)
	}
}
