package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"vicinity.dev/vicinity/test/chromium"
)

// A browser lets a page of the allowed origin read the JSON with the token, and no other page.
func TestOriginsInABrowser(t *testing.T) {
	_, browser := chromium.ForTest(t)
	empty := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/html") })
	allowed, other := httptest.NewServer(empty), httptest.NewServer(empty)
	defer allowed.Close()
	defer other.Close()
	w := newWorld(t, aCluster()...).start(t)
	served := httptest.NewServer(newAccess(w.routes(), token, "1", allowed.URL))
	defer served.Close()
	// The cookie of the console is in the browser, too.
	if err := browser.Visit(served.URL+"/?token="+token, 800); err != nil {
		t.Fatal(err)
	}
	const blocked = "TypeError"
	for _, test := range []struct {
		name, page, path, options, want string
	}{
		{"the allowed origin with the token", allowed.URL, apiPrefix + "/cluster", `{headers: {Authorization: "Bearer ` + token + `"}, credentials: "omit"}`, "200"},
		{"with another token", allowed.URL, apiPrefix + "/cluster", `{headers: {Authorization: "Bearer guess"}}`, "403"},
		{"with the cookie", allowed.URL, apiPrefix + "/cluster", `{credentials: "include"}`, blocked},
		{"a page of the console", allowed.URL, "/cluster", `{headers: {Authorization: "Bearer ` + token + `"}}`, blocked},
		{"another header", allowed.URL, apiPrefix + "/cluster", `{headers: {"X-Other": "1"}}`, blocked},
		{"a write", allowed.URL, apiPrefix + "/cluster", `{method: "DELETE"}`, blocked},
		{"another origin with the token", other.URL, apiPrefix + "/cluster", `{headers: {Authorization: "Bearer ` + token + `"}}`, blocked},
		{"another origin with the cookie", other.URL, apiPrefix + "/cluster", `{credentials: "include"}`, blocked},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := browser.Visit(test.page, 800); err != nil {
				t.Fatal(err)
			}
			var got string
			asked := fmt.Sprintf("fetch(%q, %s).then(r => String(r.status), e => e.name)", served.URL+test.path, test.options)
			if err := browser.Evaluate(asked, &got); err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
