package controlplane

import "testing"

func TestIsDebian(t *testing.T) {
	for release, want := range map[string]bool{
		"NAME=\"Debian GNU/Linux\"\nID=debian\n":    true,
		"ID=debian":                                 true,
		"NAME=Ubuntu\nID=ubuntu\nID_LIKE=debian\n":  false,
		"ID=debian-derivative\nVERSION_ID=debian\n": false,
		"": false,
	} {
		if got := isDebian([]byte(release)); got != want {
			t.Errorf("%q is Debian: %t, want %t", release, got, want)
		}
	}
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "",
		"one":               "one",
		"one\ntwo\n\n \n":   "two",
		"{\n \"a\": 1\n}\n": "}",
	} {
		if got := lastLine([]byte(text)); got != want {
			t.Errorf("the last line of %q is %q, want %q", text, got, want)
		}
	}
}
