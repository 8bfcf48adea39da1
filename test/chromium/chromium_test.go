package chromium

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestLeaving opens pages that are left for others by themselves, and asks them while they are.
func TestLeaving(t *testing.T) {
	ctx, b := ForTest(t)
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/door":
			fmt.Fprint(w, `<meta http-equiv="refresh" content="0; url=/hall">`)
		case "/hall":
			fmt.Fprint(w, `<script src="/late"></script>`)
		case "/late":
			time.Sleep(100 * time.Millisecond)
			fmt.Fprint(w, `document.title = "loaded"`)
		}
	}))
	t.Cleanup(served.Close)
	var title string
	for range 5 {
		if err := b.Visit(served.URL+"/door", 800); err != nil {
			t.Fatal(err)
		}
		if err := b.Until(ctx, `location.pathname == "/hall"`); err != nil {
			t.Fatal(err)
		}
		// The hall is loaded meanwhile, and has to be loaded again.
		if err := b.Visit(served.URL+"/hall?again", 800); err != nil {
			t.Fatal(err)
		}
		if err := b.Evaluate("document.title", &title); err != nil || title != "loaded" {
			t.Fatalf("the title is %q: %v", title, err)
		}
	}
	if err := b.Evaluate(`new Promise(() => { location.href = "/hall?left" })`, &title); !errors.Is(err, errLeft) {
		t.Errorf("a page that is left before it answers: %v", err)
	}
}
