package process

import (
	"testing"
)

func TestParseStat(t *testing.T) {
	const rest = " 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1 1"
	for _, test := range []struct {
		name, text string
		want       Stat
		ended      bool
	}{
		{"plain", "42 (sleep) S" + rest, Stat{'S', 42, 123456}, false},
		{"parentheses and spaces", "42 (a) Z (b c) T" + rest, Stat{'T', 42, 123456}, false},
		{"zombie", "42 (sh) Z" + rest, Stat{'Z', 42, 123456}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseStat([]byte(test.text))
			if err != nil || got != test.want || got.Ended() != test.ended {
				t.Errorf("parseStat(%q) = %+v, %v, ended %t, want %+v, ended %t",
					test.text, got, err, got.Ended(), test.want, test.ended)
			}
		})
	}
	for _, text := range []string{"", "42", "42 (sh)", "42 (sh) S 1 2 3", "42 (sh) S 1 42 x" + rest[9:]} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", text, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sleep) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1 1"))
	f.Add([]byte(")"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		// Reading the status works for any program name.
		_, _ = parseStat(data)
	})
}
