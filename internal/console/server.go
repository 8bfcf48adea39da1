package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Paths of the pages. Below apiPrefix each is served as JSON.
const (
	pathCluster    = "/cluster"
	pathServices   = "/services"
	pathNames      = "/names"
	pathDisruption = "/disruption"
	pathWhatIf     = "/whatif"

	apiPrefix = "/api/v1"
)

// headerFragment requests only the changing part of a page.
const headerFragment = "X-Vicinity-Fragment"

//go:embed page
var files embed.FS

// view has the values of a page, which are also served as JSON.
type view interface {
	title() string
	// parts are the sections that the page shows.
	parts() []part
}

type about struct {
	// Server is the address of the cluster.
	Server string `json:"server"`
	// Namespace is the only namespace that the console reads, or empty.
	Namespace string `json:"namespace,omitempty"`
	// At is the time of the newest change in the view.
	At time.Time `json:"at"`
	// OfflineSince is set while the cluster does not answer.
	OfflineSince *time.Time `json:"offlineSince,omitempty"`
	// Waiting has the kinds that have not been read yet.
	Waiting  []string `json:"waiting,omitempty"`
	NotKnown []string `json:"notKnown,omitempty"`
}

func (c *console) about(s *snapshot) about {
	a := about{Server: c.options.Server, Namespace: c.options.Namespace, At: s.at.UTC(), Waiting: s.waiting, NotKnown: append([]string{}, s.notKnown...)}
	if !s.offlineSince.IsZero() {
		since := s.offlineSince.UTC()
		a.OfflineSince = &since
	}
	return a
}

type answer func(context.Context, *http.Request, *snapshot) (view, *about, error)

func (c *console) routes() http.Handler {
	mux := http.NewServeMux()
	for path, one := range map[string]struct {
		name   string
		answer answer
	}{
		pathCluster:                          {"cluster", c.clusterView},
		pathServices:                         {"services", c.servicesView},
		pathServices + "/{namespace}/{name}": {"service", c.serviceView},
		pathNames:                            {"names", c.namesView},
		pathDisruption:                       {"disruption", c.disruptionView},
		pathWhatIf:                           {"whatif", c.whatIfView},
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { c.servePage(w, r, one.name, one.answer) })
		mux.HandleFunc(apiPrefix+path, func(w http.ResponseWriter, r *http.Request) { c.serveJSON(w, r, one.answer) })
	}
	mux.HandleFunc("/events", c.events)
	for name, contentType := range map[string]string{
		"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		content, err := files.ReadFile("page/" + name)
		if err != nil {
			panic(err) // templates are part of the program
		}
		mux.HandleFunc("/assets/"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(content) // a failed write means that the browser is gone
		})
	}
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, pathCluster, http.StatusSeeOther) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, &requestError{http.StatusNotFound, fmt.Sprintf("there is no page %q", r.URL.Path)})
	})
	return mux
}

// requestError is the client's fault.
type requestError struct {
	status int
	text   string
}

func (e *requestError) Error() string { return e.text }

func badRequestf(format string, args ...any) error {
	return &requestError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func notFoundf(format string, args ...any) error {
	return &requestError{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

type page struct {
	Name, Title string
	API         string // address of the same page as JSON
	Parts       []part
	About       about
	View        any
}

func (c *console) servePage(w http.ResponseWriter, r *http.Request, name string, answer answer) {
	v, a, err := answer(r.Context(), r, c.watcher.newest.Load())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.listeners.look(v.parts(), c.now())
	p := page{Name: name, Title: v.title(), API: apiPrefix + r.URL.RequestURI(), Parts: v.parts(), About: *a, View: v}
	writePage(w, r, http.StatusOK, name, p)
}

func (c *console) serveJSON(w http.ResponseWriter, r *http.Request, answer answer) {
	v, a, err := answer(r.Context(), r, c.watcher.newest.Load())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.listeners.look(v.parts(), c.now())
	whole, err := json.Marshal(struct {
		About *about `json:"about"`
		View  view   `json:"view"`
	}{a, v})
	if err != nil {
		c.fail(w, r, fmt.Errorf("writing JSON: %w", err))
		return
	}
	write(w, r, http.StatusOK, "application/json", whole)
}

// fail writes an error as a page or as JSON.
func (c *console) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var of *requestError
	if errors.As(err, &of) {
		status = of.status
	}
	if strings.HasPrefix(r.URL.Path, apiPrefix+"/") {
		text, _ := json.Marshal(map[string]string{"error": err.Error()}) // strings can always be encoded
		write(w, r, status, "application/json", text)
		return
	}
	p := page{Name: "error", Title: http.StatusText(status), About: c.about(c.watcher.newest.Load()), View: err.Error()}
	writePage(w, r, status, "error", p)
}

// writePage writes a page, or its changing part.
func writePage(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	part := "page"
	if r.Header.Get(headerFragment) != "" {
		part = "live"
	}
	var text bytes.Buffer
	if err := templates[name].ExecuteTemplate(&text, part, data); err != nil {
		http.Error(w, "The page cannot be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	// Keep a number and its percent sign on one line.
	write(w, r, status, "text/html; charset=utf-8", bytes.ReplaceAll(text.Bytes(), []byte(" %"), []byte("\u00a0%")))
}

// write writes content, or 304 if the browser has it.
func write(w http.ResponseWriter, r *http.Request, status int, contentType string, content []byte) {
	sum := sha256.Sum256(content)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Vary", headerFragment)
	if status == http.StatusOK && r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	_, _ = w.Write(content) // a failed write means that the browser is gone
}

var templates = func() map[string]*template.Template {
	pages := map[string]*template.Template{}
	layout := template.Must(template.New("layout").Funcs(functions).ParseFS(files, "page/layout.html"))
	for _, name := range []string{"cluster", "services", "service", "names", "disruption", "whatif", "error"} {
		pages[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "page/"+name+".html"))
	}
	pages["enter"] = template.Must(template.New("enter").ParseFS(files, "page/enter.html"))
	return pages
}()

// paging is the shown part of a list.
type paging struct {
	Page  int `json:"page"`
	Per   int `json:"perPage"`
	Pages int `json:"pages"`
	// Total is the length of the filtered list.
	Total int `json:"total"`

	path  string
	query url.Values
}

// mostPerPage limits the size of pages.
const (
	usuallyPerPage = 50
	mostPerPage    = 200
)

// pageOf reads the page number and size from a query.
func pageOf(r *http.Request, total int) (paging, error) {
	query := r.URL.Query()
	p := paging{Page: 1, Per: usuallyPerPage, Total: total, path: r.URL.Path, query: query}
	for name, to := range map[string]struct {
		number *int
		most   int
	}{"page": {&p.Page, 1 << 30}, "per": {&p.Per, mostPerPage}} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		number, err := strconv.Atoi(text)
		if err != nil || number < 1 || number > to.most {
			return p, badRequestf("%s %q is not allowed; it must be a number from 1 to %d", name, text, to.most)
		}
		*to.number = number
	}
	p.Pages = max(1, (total+p.Per-1)/p.Per)
	p.Page = min(p.Page, p.Pages)
	return p, nil
}

// First is the position of the first shown item, from 1.
func (p paging) First() int { return min(p.Total, (p.Page-1)*p.Per+1) }

// Last is the position of the last shown item.
func (p paging) Last() int { return min(p.Total, p.Page*p.Per) }

// To returns the address of another page of the list.
func (p paging) To(number int) string {
	return withQuery(p.path, p.query, "page", strconv.Itoa(number))
}

// Previous is the number of the previous page.
func (p paging) Previous() int { return p.Page - 1 }

// Next is the number of the next page.
func (p paging) Next() int { return p.Page + 1 }

func window[T any](list []T, p paging) []T { return list[min(len(list), (p.Page-1)*p.Per):p.Last()] }

// withQuery replaces one value of a query.
func withQuery(path string, query url.Values, name, value string) string {
	changed := url.Values{}
	for other, values := range query {
		changed[other] = values
	}
	changed[name] = []string{value}
	return (&url.URL{Path: strings.TrimPrefix(path, apiPrefix), RawQuery: changed.Encode()}).String()
}

// oneOf reads an optional value of a query that must be one of several.
func oneOf[T ~string](query url.Values, name string, allowed ...T) (T, error) {
	given := query.Get(name)
	if given == "" {
		return "", nil
	}
	for _, one := range allowed {
		if string(one) == given {
			return one, nil
		}
	}
	return "", badRequestf("%s %q is not allowed; it must be one of %v", name, given, allowed)
}
