package simulate

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// ReadScenarios reads scenarios from a text of lines:
//
//	# a flash sale in one zone
//	scenario sale
//	0s    nodes     a=10 b=10 c=10
//	0s    endpoints a=4 b=4 c=4
//	10m   traffic   a=8 b=1 c=1     # where clients really are, in any unit
//	12m   endpoints a=+6            # a sign adds to what there is
//	30m   traffic                   # by nodes again
//	40m   retire    a=6             # the oldest go; endpoints a=-6 are the newest
//	1h    end
//
// A line is a time since the start, what changes (see Subject), and the zones with
// their numbers; lines of the same time are one event. A number without a sign
// replaces what there is. White space separates, blank lines and what follows a #
// mean nothing. Errors name the line.
func ReadScenarios(r io.Reader) ([]Scenario, error) {
	p := scenarioReader{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		p.line++
		text, _, _ := strings.Cut(lines.Text(), "#")
		if fields := strings.Fields(text); len(fields) > 0 {
			if err := p.read(fields); err != nil {
				return nil, fmt.Errorf("line %d: %w", p.line, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", p.line+1, err)
	}
	switch {
	case p.open:
		return nil, fmt.Errorf("line %d: scenario %s has no end; add a line such as %q", p.line, p.scenario().Name, "1h end")
	case len(p.scenarios) == 0:
		return nil, fmt.Errorf("there is no scenario; the first line must be %q", "scenario NAME")
	}
	return p.scenarios, nil
}

// scenarioReader is a reader between two lines.
type scenarioReader struct {
	line      int
	scenarios []Scenario
	open      bool // the last scenario has not ended
	census    *census
}

func (p *scenarioReader) scenario() *Scenario {
	return &p.scenarios[len(p.scenarios)-1]
}

func (p *scenarioReader) read(fields []string) error {
	if fields[0] == "scenario" {
		return p.begin(fields[1:])
	}
	if !p.open {
		return fmt.Errorf("%q is outside of a scenario; a line %q must come first", fields[0], "scenario NAME")
	}
	at, err := time.ParseDuration(fields[0])
	if err != nil || at < 0 {
		return fmt.Errorf("time: %q is not allowed; it must be a time since the start such as 0s, 90s, 10m or 1h30m", fields[0])
	}
	if len(fields) == 1 {
		return fmt.Errorf("%q says nothing; what changes must follow: %s, %s, %s, %s, %s or end", fields[0], SubjectNodes, SubjectEndpoints, SubjectRetire, SubjectUnready, SubjectTraffic)
	}
	if fields[1] == "end" {
		return p.end(at, fields[2:])
	}
	change := Change{Subject: Subject(fields[1])}
	for _, field := range fields[2:] {
		zone, err := readZoneChange(change.Subject, field)
		if err != nil {
			return err
		}
		change.Zones = append(change.Zones, zone)
	}
	s := p.scenario()
	if last := len(s.Events) - 1; last < 0 || s.Events[last].At != at {
		if err := p.census.advance(at); err != nil {
			return err
		}
		s.Events = append(s.Events, Event{At: at})
	}
	if err := p.census.apply(change); err != nil {
		return err
	}
	event := &s.Events[len(s.Events)-1]
	event.Changes = append(event.Changes, change)
	return nil
}

func (p *scenarioReader) begin(fields []string) error {
	if p.open {
		return fmt.Errorf("scenario %s has no end; add a line such as %q before the next", p.scenario().Name, "1h end")
	}
	if len(fields) != 1 {
		return fmt.Errorf("scenario: the name %q is not allowed; it must be one word", strings.Join(fields, " "))
	}
	for _, s := range p.scenarios {
		if s.Name == fields[0] {
			return fmt.Errorf("scenario: the name %q is given twice", s.Name)
		}
	}
	p.scenarios = append(p.scenarios, Scenario{Name: fields[0]})
	p.open, p.census = true, newCensus()
	return nil
}

func (p *scenarioReader) end(at time.Duration, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("end: %q follows; nothing may", rest[0])
	}
	if err := p.census.end(at); err != nil {
		return err
	}
	p.scenario().Length, p.open = at, false
	return nil
}

// readZoneChange reads "zone=number".
func readZoneChange(subject Subject, field string) (ZoneChange, error) {
	zone, number, found := strings.Cut(field, "=")
	if !found {
		return ZoneChange{}, fmt.Errorf("%s: %q is not allowed; write ZONE=NUMBER", subject, field)
	}
	amount, err := strconv.Atoi(number)
	if err != nil {
		return ZoneChange{}, fmt.Errorf("%s: zone %q: %q is not allowed; it must be a whole number", subject, zone, number)
	}
	relative := strings.HasPrefix(number, "+") || strings.HasPrefix(number, "-")
	return ZoneChange{Zone: zone, Amount: amount, Relative: relative}, nil
}
