package browser_test

import (
	"testing"

	"vicinity.dev/vicinity/test/chromium"
)

// browser is a browser whose errors fail the test.
type browser struct{ *chromium.Browser }

// openBrowser starts a browser with one empty page, for as long as the test runs.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	_, opened := chromium.ForTest(t)
	return &browser{opened}
}

// visit opens a file in a window of the given width and waits until it is loaded.
func (b *browser) visit(t *testing.T, file string, width int) {
	t.Helper()
	if err := b.Visit("file://"+file, width); err != nil {
		t.Fatal(err)
	}
}

// evaluate runs an expression in the page and reads its value into result.
func (b *browser) evaluate(t *testing.T, expression string, result any) {
	t.Helper()
	if err := b.Evaluate(expression, result); err != nil {
		t.Fatal(err)
	}
}

// complaints are what the browser found wrong since the last visit, requests for anything but the
// file itself included.
func (b *browser) complaints(t *testing.T, file string) []string {
	t.Helper()
	found, err := b.Complaints(func(url string) bool { return url == "file://"+file })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// screenshot saves the whole page as a picture.
func (b *browser) screenshot(t *testing.T, file string) {
	t.Helper()
	if err := b.Screenshot(file, 0); err != nil {
		t.Fatal(err)
	}
}
