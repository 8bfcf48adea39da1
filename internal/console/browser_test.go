package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/test/chromium"
)

// A page that cannot be brought up to date says so in sight, and takes it back when it can.
func TestAPageThatIsOfBefore(t *testing.T) {
	ctx, browser := chromium.ForTest(t)
	w := newWorld(t, aCluster()...).start(t)
	var fails atomic.Bool
	pages := w.routes()
	served := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if fails.Load() && r.Header.Get(headerFragment) != "" {
			http.Error(rw, "no", http.StatusInternalServerError)
			return
		}
		pages.ServeHTTP(rw, r)
	}))
	defer served.Close()
	defer served.CloseClientConnections()
	if err := browser.Visit(served.URL+"/cluster", 800); err != nil {
		t.Fatal(err)
	}
	const says = `document.getElementById("connection")`
	for _, step := range []struct {
		fails bool
		so    string
	}{
		{false, says + `.textContent.startsWith("Live")`},
		{true, says + `.matches(".lost") && getComputedStyle(` + says + `).position == "fixed" && ` + says + `.textContent.includes("is of before")`},
		{false, says + `.className == "" && ` + says + `.textContent == "Live again."`},
	} {
		fails.Store(step.fails)
		w.listeners.publish(partCluster)
		if err := browser.Until(ctx, step.so); err != nil {
			t.Fatal(err)
		}
	}
}

// A live update keeps the focus on the element that had it, or else on its table, or else on what
// is live of the page.
func TestFocusStays(t *testing.T) {
	ctx, browser := chromium.ForTest(t)
	w := newWorld(t, aCluster(aService("shop", "old", nil), aSlice("shop", "old", "b-1"))...).start(t)
	served := httptest.NewServer(w.routes())
	defer served.Close()
	defer served.CloseClientConnections()
	const table, field, web, db = `.scroll[aria-label="Services"]`, `input[name=q]`, `a[href="/services/shop/web"]`, `a[href="/services/data/db"]`
	for _, step := range []struct{ focused, namespace, gone, then string }{
		{web, "shop", "plain", web},
		{table, "shop", "old", table},
		{web, "shop", "web", table},
		{field, "shop", "late", field},
		{db, "data", "db", "#live"},
	} {
		if step.gone == "late" {
			if _, err := w.typed.CoreV1().Services("shop").Create(ctx, aService("shop", "late", nil), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		row := fmt.Sprintf(`document.querySelector('a[href="/services/%s/%s"]')`, step.namespace, step.gone)
		w.eventually(t, "the row is there", func() bool {
			return strings.Contains(w.get(t, "/services", http.StatusOK), "/services/"+step.namespace+"/"+step.gone)
		})
		if err := browser.Visit(served.URL+"/services", 1280); err != nil {
			t.Fatal(err)
		}
		for _, so := range []string{
			row, `document.getElementById("connection").textContent.startsWith("Live")`,
			fmt.Sprintf(`document.querySelector(%q).focus() ?? true`, step.focused),
		} {
			if err := browser.Until(ctx, so); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.typed.CoreV1().Services(step.namespace).Delete(ctx, step.gone, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := browser.Until(ctx, "!"+row); err != nil {
			t.Fatal(err)
		}
		var there bool
		if err := browser.Evaluate(fmt.Sprintf(`document.activeElement.matches(%q)`, step.then), &there); err != nil || !there {
			t.Errorf("without %s the focus goes from %s elsewhere than to %s (%v)", step.gone, step.focused, step.then, err)
		}
	}
}

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
