package meter

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/kube"
)

// A program that takes no notice of being told to end is killed, and one that does is not.
func TestStop(t *testing.T) {
	for _, test := range []struct {
		name, script string
		limit        time.Duration
		want         string
	}{
		{"obedient", "echo ready; exec sleep 3600", time.Minute, ""},
		{"deaf", "trap '' TERM; echo ready; exec sleep 3600", time.Millisecond, "deaf did not end within 1ms: ready"},
	} {
		ctx, lost := context.WithCancelCause(t.Context())
		folder := t.TempDir()
		p, err := Start(test.name, "", folder, lost, "sh", "-c", test.script)
		if err != nil {
			t.Fatal(err)
		}
		err = kube.Wait(t.Context(), "the program to be ready", func(context.Context) (string, error) {
			text, err := os.ReadFile(filepath.Join(folder, test.name+".log"))
			if string(text) != "ready\n" {
				return "it says " + string(text), err
			}
			return "", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		err = p.stopWithin(test.limit)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %q", test.name, err, test.want)
		}
		if ctx.Err() != nil {
			t.Errorf("%s: it is said to have ended by itself: %v", test.name, context.Cause(ctx))
		}
	}
}
