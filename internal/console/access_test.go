package console

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The console answers only its own user, and tells others what to do.
func TestAccess(t *testing.T) {
	w := newWorld(t, aCluster()...).start(t)
	cookie := w.cookie
	for _, test := range []struct {
		name   string
		method string
		path   string
		change func(*http.Request)
		status int
		says   string
	}{
		{name: "with the cookie", path: "/cluster", status: 200},
		{name: "without", path: "/cluster", change: func(r *http.Request) { r.Header.Del("Cookie") }, status: 403, says: "its token lets you in"},
		{name: "another cookie", path: "/cluster", change: func(r *http.Request) {
			r.Header.Set("Cookie", cookie.Name+"=guess")
		}, status: 403},
		{name: "the token as the cookie", path: "/cluster", change: func(r *http.Request) {
			r.Header.Set("Cookie", cookie.Name+"="+token)
		}, status: 403},
		{name: "another token", path: "/?token=guess", change: func(r *http.Request) { r.Header.Del("Cookie") }, status: 403},
		{name: "an empty token", path: "/?token=", change: func(r *http.Request) { r.Header.Del("Cookie") }, status: 403},
		{name: "the token as a bearer", path: apiPrefix + "/cluster", change: func(r *http.Request) {
			r.Header.Del("Cookie")
			r.Header.Set("Authorization", "Bearer "+token)
		}, status: 200},
		{name: "another bearer", path: apiPrefix + "/cluster", change: func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer guess")
		}, status: 403},
		{name: "an asset without the cookie", path: "/assets/console.js", change: func(r *http.Request) { r.Header.Del("Cookie") }, status: 403},
		{name: "localhost", path: "/cluster", change: func(r *http.Request) { r.Host = "localhost:8080" }, status: 200},
		{name: "IPv6", path: "/cluster", change: func(r *http.Request) { r.Host = "[::1]:8080" }, status: 200},
		{name: "the name of another that leads here", path: "/cluster", change: func(r *http.Request) { r.Host = "evil.example:80" }, status: 421, says: "names of this machine only"},
		{name: "such a name with the token", path: "/?token=" + token, change: func(r *http.Request) { r.Host = "evil.example" }, status: 421},
		{name: "a name that begins like this machine's", path: "/cluster", change: func(r *http.Request) { r.Host = "localhost.evil.example" }, status: 421},
		{name: "an address of the network", path: "/cluster", change: func(r *http.Request) { r.Host = "192.0.2.1:80" }, status: 421},
		{name: "a page of another port that uses what is here", path: "/events?part=cluster", change: func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-site")
			r.Header.Set("Sec-Fetch-Mode", "no-cors")
			r.Header.Set("Sec-Fetch-Dest", "image")
		}, status: 403, says: "only its own pages"},
		{name: "a frame of another site with the token", path: "/?token=" + token, change: func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
			r.Header.Set("Sec-Fetch-Dest", "iframe")
		}, status: 403},
		{name: "a page of another origin with the token", path: apiPrefix + "/cluster", change: func(r *http.Request) {
			r.Header.Set("Origin", "http://"+r.Host+".evil.example")
			r.Header.Set("Authorization", "Bearer "+token)
		}, status: 403, says: "only its own pages"},
		{name: "a page without an origin", path: "/cluster", change: func(r *http.Request) { r.Header.Set("Origin", "null") }, status: 403},
		{name: "the own origin", path: "/cluster", change: func(r *http.Request) { r.Header.Set("Origin", "http://"+r.Host) }, status: 200},
		{name: "a link of another page", path: "/cluster", change: func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
			r.Header.Set("Sec-Fetch-Dest", "document")
		}, status: 200},
		{name: "an own page", path: "/assets/console.js", change: func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.Header.Set("Sec-Fetch-Mode", "cors")
		}, status: 200},
		{name: "a write", method: http.MethodPost, path: "/cluster", status: 405, says: "reads only"},
		{name: "a delete", method: http.MethodDelete, path: "/services/shop/web", status: 405},
		{name: "no page", path: "/nothing", status: 404, says: "there is no page"},
		{name: "no view", path: apiPrefix + "/nothing", status: 404, says: `{"error":"there is no page`},
	} {
		t.Run(test.name, func(t *testing.T) {
			method := test.method
			if method == "" {
				method = http.MethodGet
			}
			answer := w.raw(t, method, test.path, test.change)
			text, _ := io.ReadAll(answer.Body)
			if answer.StatusCode != test.status || !strings.Contains(string(text), test.says) {
				t.Errorf("%s, want %d: %s", answer.Status, test.status, text)
			}
			policy := answer.Header.Get("Content-Security-Policy")
			if !strings.Contains(policy, "default-src 'none'; script-src 'self'; style-src 'self'") || strings.Contains(policy, "unsafe") {
				t.Errorf("the policy is %q", policy)
			}
			if answer.Header.Get("X-Frame-Options") != "DENY" || answer.Header.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("headers are missing in %v", answer.Header)
			}
		})
	}
}

// The token becomes a cookie that scripts and other sites cannot read, and leaves the address.
func TestTokenBecomesCookie(t *testing.T) {
	w := newWorld(t, aCluster()...).start(t)
	for path, to := range map[string]string{
		"/?token=" + token:                              "/cluster",
		"/services?q=web&token=" + token:                "/services?q=web",
		"//evil.example/x?token=" + token:               "/cluster",
		`/\evil.example?token=` + token:                 "/%5Cevil.example",
		"/services/shop/web?token=" + token + "&token=": "/services/shop/web",
	} {
		answer := w.raw(t, http.MethodGet, path, func(r *http.Request) { r.Header.Del("Cookie") })
		text, _ := io.ReadAll(answer.Body)
		if want := `content="0; url=` + to + `"`; answer.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s leads to\n%s, want %s", path, text, want)
			continue
		}
		cookie := answer.Cookies()[0]
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Value == token || len(cookie.Value) < 20 {
			t.Errorf("the cookie is %v", cookie)
		}
	}
}

// No page has anything that the policy forbids: inline styles and scripts, handlers, and foreign
// addresses.
func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	w := newWorld(t, aCluster()...).start(t)
	for _, path := range []string{
		"/cluster", "/services", "/services/shop/web", "/services/data/db", "/names", "/disruption", "/whatif", "/whatif?service=shop/web&zone=a",
		"/assets/console.css", "/assets/console.js",
	} {
		page := w.get(t, path, 200)
		for _, no := range []string{"<style", "style=", "onclick", "onload", "http://", "//cdn", "@import", "url("} {
			if strings.Contains(page, no) {
				t.Errorf("%s has %q", path, no)
			}
		}
		if rest := strings.ReplaceAll(page, "https://cluster.test", ""); strings.Contains(rest, "https://") {
			t.Errorf("%s has a foreign address", path)
		}
		if n := strings.Count(page, "<script"); n > strings.Count(page, `<script src="/assets/console.js" defer></script>`) {
			t.Errorf("%s has a script of its own", path)
		}
	}
}
