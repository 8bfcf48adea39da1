package cli

import (
	"fmt"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
)

func writeStatus(p *page, status *inspect.Status, wide bool) {
	for i, shift := range status.ZoneShifts {
		if i == 0 {
			p.gap()
		}
		p.printf("%s\n", shift)
	}
	services := status.Services
	if len(services) == 0 {
		return
	}
	titles := []string{"namespace", "service", "mode", "asks for", "state", ">endpoints", ">zones", ">in-zone %", ">overload %", "delivery"}
	if wide {
		titles = append(titles, "written as", "decided by")
	}
	t := plaintext.NewTable(append(titles, "note")...)
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
	p.table("", t)
}

// notesCell returns the first note, or all of them.
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
