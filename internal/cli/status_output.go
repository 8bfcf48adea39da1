package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/plaintext"
)

// statusFormats are the forms of --output.
const statusFormats = "table, wide, json or yaml"

func serviceListFormat(output string) (func(io.Writer, *inspect.Status) error, error) {
	text := func(wide bool) func(io.Writer, *inspect.Status) error {
		return func(w io.Writer, status *inspect.Status) error {
			if len(status.Services) == 0 {
				return nil
			}
			return statusTable(status.Services, wide).Text(w, "")
		}
	}
	return formatOf(output, statusFormats, map[string]func(io.Writer, *inspect.Status) error{"table": text(false), "wide": text(true)})
}

func statusTable(services []inspect.ServiceStatus, wide bool) plaintext.Table {
	t := plaintext.Table{Columns: []plaintext.Column{
		{Title: "namespace"},
		{Title: "service"},
		{Title: "mode"},
		{Title: "asks for"},
		{Title: "state"},
		{Title: "endpoints", Right: true},
		{Title: "zones", Right: true},
		{Title: "in-zone %", Right: true},
		{Title: "overload %", Right: true},
		{Title: "delivery"},
	}}
	if wide {
		t.Columns = append(t.Columns, plaintext.Column{Title: "written as"}, plaintext.Column{Title: "decided by"})
	}
	t.Columns = append(t.Columns, plaintext.Column{Title: "note"})
	for i := range services {
		s := &services[i]
		cells := []string{s.Namespace, s.Title(), s.Mode, explain.ShortIntent(s.Intent), orDash(s.State), "-", "-", "-", "-", s.Delivery.Title()}
		if s.Endpoints != nil {
			cells[5], cells[6] = strconv.Itoa(*s.Endpoints), strconv.Itoa(*s.Zones)
		}
		if s.Expected != nil {
			cells[7], cells[8] = oneDecimal(s.Figures.InZone), oneDecimal(s.Figures.Overload)
		}
		if wide {
			cells = append(cells, orDash(s.Source), orDash(s.Why))
		}
		t.Rows = append(t.Rows, append(cells, notesCell(s.Notes, wide)))
	}
	return t
}

// notesCell is the first of the notes, or all of them.
func notesCell(notes []string, all bool) string {
	switch {
	case len(notes) == 0:
		return "-"
	case all:
		return strings.Join(notes, "; ")
	case len(notes) > 1:
		return fmt.Sprintf("%s (and %d more)", notes[0], len(notes)-1)
	}
	return notes[0]
}
