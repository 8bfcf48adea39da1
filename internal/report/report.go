// Package report draws the results of the simulator as one HTML page that needs
// nothing else: no file beside it, no network and no script.
//
// Static is the page of algorithms scored over many cases, Dynamics the one of
// what happens to a Service over time. The package computes nothing about
// allocation that its input does not say.
//
// Charts are lists of shapes, see figure, that a template turns into SVG, so that
// all text of the data, such as the names of cases, is escaped by html/template
// wherever it ends up. The look is in page/style.css.tmpl alone: shapes have
// classes and no colours.
package report

import (
	"bytes"
	"embed"
	"html/template"
	"io"
)

//go:embed page
var pageFiles embed.FS

// page is what the outer template shows around the parts of a page.
type page struct {
	// Title is the name of the document, Command what made it, Headline the one
	// sentence to remember.
	Title, Command, Headline, Lead string
	// Notice warns about the whole page, such as that a run was interrupted.
	Notice string
	Facts  []fact
	Body   any
}

type fact struct {
	Label, Value string
}

// write renders the page with the template of that name as its body. Nothing is
// written if that fails.
func (p page) write(w io.Writer, body string) error {
	t, err := template.New("report").Funcs(functions()).ParseFS(pageFiles, "page/*.tmpl")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, body, p); err != nil {
		return err
	}
	_, err = b.WriteTo(w)
	return err
}

func functions() template.FuncMap {
	return template.FuncMap{
		"px":      px,
		"count":   count[int64],
		"percent": percent,
		"points":  points,
	}
}
