package meter

import (
	"strings"
	"testing"
)

func TestParseTicks(t *testing.T) {
	got, err := parseTicks("cpu  100 10 50 2000 7 0 3 1 90 9\ncpu0 50 5 25 1000 3 0 1 0 45 4\n")
	if want := (ticks{busy: 100 + 10 + 50 + 3 + 1, idle: 2000 + 7}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"":                  `the first line of /proc/stat is "", want that of all CPUs`,
		"cpu0 1 2 3 4":      "want that of all CPUs",
		"cpu 1 many 3 4":    `reading /proc/stat: strconv.ParseInt: parsing "many"`,
		"cpu 0 0 0 0 0 0 0": "/proc/stat counts nothing",
	} {
		if _, err := parseTicks(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", text, err, want)
		}
	}
}
