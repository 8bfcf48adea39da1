// Package report draws the results of the simulator and of practice runs as one HTML page without other
// files, network or scripts.
//
// Static is the page about many cases, GameDay the page about a practice run. The package computes nothing about allocation.
//
// Charts are lists of shapes that a template turns into SVG, so that html/template escapes all text of
// the data. Only page/style.css.tmpl decides the look: shapes have classes and no colours.
package report

import (
	"bytes"
	"embed"
	"html/template"
	"io"

	"vicinity.dev/vicinity/internal/kit/plaintext"
)

//go:embed page
var pageFiles embed.FS

// page fills the outer template.
type page struct {
	// Title is the name of the document, Command the command that made it, and Headline its main
	// result.
	Title, Command, Headline, Lead string
	// Notice is a warning about the whole page, such as an interrupted run.
	Notice string
	Facts  []fact
	Body   any
}

type fact struct {
	Label, Value string
}

// write renders the page with a template as its body. After an error nothing is written.
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
		"count":   plaintext.Thousands,
		"rate":    func(perSecond float64) string { return plaintext.Thousands(int64(perSecond)) },
		"percent": percent,
		"points":  plaintext.Fixed,
	}
}
