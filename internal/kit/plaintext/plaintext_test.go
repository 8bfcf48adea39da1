package plaintext

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"a flood in zone b":         "a flood in zone b",
		"überall, 50 %":             "überall, 50 %",
		"two\nlines\tand a tab":     "two lines and a tab",
		"\x1b[2Jall is well":        "�[2Jall is well",
		"\u009b2Jall is well":       "�2Jall is well",
		"back\rover":                "back over",
		"\u202etxet":                "�txet",
		"broken \xff":               "broken �",
		strings.Repeat("x", 401):    strings.Repeat("x", 397) + "…",
		strings.Repeat("\x00", 300): strings.Repeat("�", 132) + "…",
	} {
		if got := Of(text); got != want {
			t.Errorf("%q is written %q, want %q", text, got, want)
		}
	}
}

// FuzzOf checks that a text has nothing that a terminal obeys, is bounded, and does not change when it
// is written again.
func FuzzOf(f *testing.F) {
	for _, text := range []string{"", "a flood", "\x1b]0;title\a", "\u009b31m", "\xff\xfe", strings.Repeat("é", 300), strings.Repeat("\x01", 200) + "é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Of(text)
		if len(got) > MaxBytes || !utf8.ValidString(got) {
			t.Fatalf("%q has %d bytes, or is not text", got, len(got))
		}
		for _, r := range got {
			if r != ' ' && (!unicode.IsPrint(r) || unicode.IsControl(r)) && r != unicode.ReplacementChar {
				t.Fatalf("%q has %U", got, r)
			}
		}
		if again := Of(got); again != got {
			t.Fatalf("%q, written again %q", got, again)
		}
		plain := func(r rune) bool { return r < utf8.RuneSelf && unicode.IsPrint(r) }
		if len(text) <= MaxBytes && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 && got != text {
			t.Fatalf("%q is changed to %q", text, got)
		}
	})
}
