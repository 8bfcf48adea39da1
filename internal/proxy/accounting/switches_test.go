package accounting

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestSwitches(t *testing.T) {
	folder := t.TempDir()
	k := conntrack{folder}
	if _, _, err := k.switches(); !errors.Is(err, errNotLoaded) {
		t.Errorf("without switches: %v", err)
	}
	if err := k.countBytes(); !errors.Is(err, errNotLoaded) {
		t.Errorf("without the switch: %v", err)
	}
	if err := os.Mkdir(filepath.Join(folder, "netfilter"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		bytes, ends         string
		wantBytes, wantEnds bool
	}{
		{"0\n", "0\n", false, false}, {"1\n", "0\n", true, false}, {"0\n", "1\n", false, true}, {"0\n", "2\n", false, true},
	} {
		for name, text := range map[string]string{switchBytes: test.bytes, switchEnds: test.ends} {
			if err := os.WriteFile(switchFile(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if bytes, ends, err := k.switches(); err != nil || bytes != test.wantBytes || ends != test.wantEnds {
			t.Errorf("%+v: %t, %t, %v", test, bytes, ends, err)
		}
	}
	if err := k.countBytes(); err != nil {
		t.Error(err)
	}
	if bytes, _, err := k.switches(); err != nil || !bytes {
		t.Errorf("bytes are not counted after they are switched on: %v", err)
	}
}
