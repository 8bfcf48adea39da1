package console

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// policy lets a browser load only what the console serves, and run no inline script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// access admits readers who have the token of the printed address and use a name of this machine.
type access struct {
	next    http.Handler
	token   string
	cookie  string // has the port: browsers send the cookies of all ports of a machine
	session string
}

func newAccess(next http.Handler, token, port string) *access {
	return &access{next: next, token: token, cookie: "vicinity-console-" + port, session: rand.Text()}
}

func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	switch {
	case !isThisMachine(r.Host):
		// A foreign name that resolves to this machine is in the Host header.
		http.Error(w, "The console answers under names of this machine only: localhost, 127.0.0.1 or [::1].", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The console reads only: the method must be GET or HEAD.", http.StatusMethodNotAllowed)
	case isForAnother(r):
		http.Error(w, "The console answers only its own pages: other pages may link here, but not read its data.", http.StatusForbidden)
	case a.isToken(r.URL.Query().Get("token")):
		a.admit(w, r)
	case !a.isAdmitted(r):
		http.Error(w, `Open the address that "vicinity console" has printed: its token lets you in.`, http.StatusForbidden)
	default:
		a.next.ServeHTTP(w, r)
	}
}

// isThisMachine reports whether a Host header names this machine. It ignores the port, which differs
// behind a tunnel.
func isThisMachine(host string) bool {
	name := host
	if split, _, err := net.SplitHostPort(host); err == nil {
		name = split
	}
	name = strings.Trim(name, "[]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}

// isForAnother reports whether a page of another origin requests content to use in itself. Browsers
// send the cookie with such requests, also for pages of another port of this machine.
func isForAnother(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return true
	}
	site := r.Header.Get("Sec-Fetch-Site")
	isOwn := site == "" || site == "same-origin" || site == "none"
	return !isOwn && (r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document")
}

func (a *access) isToken(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(a.token)) == 1
}

func (a *access) isAdmitted(r *http.Request) bool {
	if authorization := r.Header.Get("Authorization"); authorization != "" {
		bearer, found := strings.CutPrefix(authorization, "Bearer ")
		return found && a.isToken(bearer)
	}
	for _, cookie := range r.CookiesNamed(a.cookie) {
		if subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(a.session)) == 1 {
			return true
		}
	}
	return false
}

// admit turns the token into a cookie, and makes the browser go on without the token. It answers with
// a page instead of a redirect: after a redirect from another site, a browser would not send the
// cookie.
func (a *access) admit(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: a.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	query := r.URL.Query()
	query.Del("token")
	to := url.URL{Path: r.URL.Path, RawQuery: query.Encode()}
	if to.Path == "/" || !strings.HasPrefix(to.Path, "/") || strings.HasPrefix(to.Path, "//") {
		to = url.URL{Path: pathCluster}
	}
	writePage(w, r, http.StatusOK, "enter", enterPage{To: to.String()})
}

type enterPage struct{ To string }
