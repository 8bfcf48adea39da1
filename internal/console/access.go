package console

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// policy has a browser load nothing but what the console itself serves, and run no script
// that stands in a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// access lets in who has the token of the address that was printed, under a name of this
// machine, to read. Pages of one other origin may read the JSON, if the console allows one.
type access struct {
	next    http.Handler
	token   string
	cookie  string // its name: browsers send those of all ports of a machine
	session string
	origin  string // whose pages may read the JSON, empty for none
}

func newAccess(next http.Handler, token, port, origin string) *access {
	return &access{next: next, token: token, cookie: "vicinity-console-" + port, session: rand.Text(), origin: origin}
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
	header.Set("Vary", "Origin")
	if !isThisMachine(r.Host) {
		// A page from elsewhere whose name leads here has that name in the header.
		http.Error(w, "The console answers under names of this machine only: localhost, 127.0.0.1 or [::1].", http.StatusMisdirectedRequest)
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		a.serveElsewhere(w, r, origin)
		return
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The console reads only: the method must be GET or HEAD.", http.StatusMethodNotAllowed)
	case isForAnother(r):
		http.Error(w, "The console answers its own pages only: another page may lead here, and read nothing.", http.StatusForbidden)
	case a.isToken(r.URL.Query().Get("token")):
		a.admit(w, r)
	case !a.isAdmitted(r):
		http.Error(w, `Open the address that "vicinity console" has printed: its token lets you in.`, http.StatusForbidden)
	default:
		a.next.ServeHTTP(w, r)
	}
}

// serveElsewhere answers a page of another origin, by the rules of CORS. A cookie does not let it
// in: it has the token itself, or nothing.
func (a *access) serveElsewhere(w http.ResponseWriter, r *http.Request, origin string) {
	if a.origin == "" || origin != a.origin || !strings.HasPrefix(r.URL.Path, apiPrefix+"/") {
		http.Error(w, fmt.Sprintf("Pages of %q may not read this. If they should read the JSON, start the console with --allow-origin and that origin.", origin), http.StatusForbidden)
		return
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", a.origin)
	switch {
	case r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") == http.MethodGet:
		header.Add("Vary", "Access-Control-Request-Private-Network")
		header.Set("Access-Control-Allow-Methods", http.MethodGet)
		header.Set("Access-Control-Allow-Headers", "Authorization")
		if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
			header.Set("Access-Control-Allow-Private-Network", "true")
		}
		w.WriteHeader(http.StatusNoContent)
	case r.Method != http.MethodGet:
		header.Set("Allow", http.MethodGet)
		http.Error(w, "The console reads only: the method must be GET.", http.StatusMethodNotAllowed)
	case !a.hasBearer(r):
		http.Error(w, `The token is missing or of another console: each has its own. It is in the address that "vicinity console" has printed.`, http.StatusForbidden)
	default:
		a.next.ServeHTTP(w, r)
	}
}

// isThisMachine reports whether a Host header names this machine. The port does not matter: it is
// another one where a tunnel leads here.
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

// isForAnother reports whether a page of another origin asks for something to use in it. Browsers send
// the cookie to what is served at another port of the machine, and for pages from there, too.
func isForAnother(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	isOwn := site == "" || site == "same-origin" || site == "none"
	return !isOwn && (r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document")
}

func (a *access) isToken(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(a.token)) == 1
}

func (a *access) hasBearer(r *http.Request) bool {
	bearer, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return found && a.isToken(bearer)
}

func (a *access) isAdmitted(r *http.Request) bool {
	if r.Header.Get("Authorization") != "" {
		return a.hasBearer(r)
	}
	for _, cookie := range r.CookiesNamed(a.cookie) {
		if subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(a.session)) == 1 {
			return true
		}
	}
	return false
}

// admit turns the token into a cookie, and has the browser go on without the token. It answers
// with a page, not with a redirect: a browser that was sent here by another site would not
// send the cookie after that.
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
