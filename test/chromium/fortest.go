package chromium

import (
	"context"
	"errors"
	"testing"
	"time"
)

// patience is how long a browser may take for all that a test asks of it, its start from a slow disk included.
const patience = 5 * time.Minute

// ForTest opens a browser for the time of a test, which is skipped where there is no Chromium. What the
// browser has written is shown if the test fails.
func ForTest(t testing.TB) (context.Context, *Browser) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	b, err := Open(ctx, t.TempDir())
	if errors.Is(err, errNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Log(err)
		}
		if t.Failed() {
			t.Logf("chromium said: %s", b.Log.Bytes())
		}
	})
	return ctx, b
}
