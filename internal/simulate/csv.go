package simulate

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"vicinity.dev/vicinity/internal/allocate"
)

// CSV is a data set that is read row by row. The header names the columns: "name",
// then the zones. Each row is a case: its name, then for each zone a cell with the
// zone's number of nodes, a blank and its number of endpoints, such as "3 12". A
// region that does not have the zone leaves the cell empty.
//
// A CSV is read once, by one run.
type CSV struct {
	name      string
	zones     []string
	skipping  bool
	malformed int64
	first     []error
	reader    *csv.Reader
	planner   allocate.Planner
}

// CSVOptions say how to read.
type CSVOptions struct {
	// Name is that of the data set.
	Name string
	// SkipMalformed makes the run pass over rows that make no sense. Otherwise the
	// first one ends it.
	SkipMalformed bool
}

// MalformedError says what is wrong with one row.
type MalformedError struct {
	Line int
	// Column and Cell are the column's name and the content, empty if it is the whole row.
	Column, Cell string
	Reason       string
}

func (e *MalformedError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d, column %s: cell %q %s", e.Line, strconv.Quote(e.Column), e.Cell, e.Reason)
}

// keptErrors is how many of the malformed rows are remembered.
const keptErrors = 5

// NewCSV reads the header.
func NewCSV(r io.Reader, options CSVOptions) (*CSV, error) {
	buffered := bufio.NewReader(r)
	// Spreadsheets put a byte order mark in front.
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		if _, err := buffered.Discard(3); err != nil {
			return nil, err
		}
	}
	c := &CSV{name: options.Name, skipping: options.SkipMalformed, reader: csv.NewReader(buffered)}
	c.reader.ReuseRecord = true
	c.reader.FieldsPerRecord = -1 // the error would not name the line as others do
	header, err := c.reader.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("reading %s: it is empty; it must begin with a header such as %q", c.name, "name,zone-a,zone-b")
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", c.name, readError(err))
	case strings.TrimSpace(header[0]) != "name":
		return nil, c.headerErrorf("the first column of the header is %q; it must be %q", header[0], "name")
	case len(header) == 1:
		return nil, c.headerErrorf("the header has no zone; it must be such as %q", "name,zone-a,zone-b")
	}
	for i, cell := range header[1:] {
		zone := strings.TrimSpace(strings.Clone(cell))
		switch {
		case zone == "":
			return nil, c.headerErrorf("column %d of the header is empty; it must be the name of a zone", i+2)
		case slices.Contains(c.zones, zone):
			return nil, c.headerErrorf("the header has the zone %q twice; each may have one column", zone)
		}
		c.zones = append(c.zones, zone)
	}
	return c, nil
}

func (c *CSV) headerErrorf(format string, args ...any) error {
	line, _ := c.reader.FieldPos(0)
	return fmt.Errorf("reading %s: %w", c.name, &MalformedError{Line: line, Reason: fmt.Sprintf(format, args...)})
}

// Name is that of the options.
func (c *CSV) Name() string { return c.name }

// Cases is unknown until all is read.
func (c *CSV) Cases() (n int64, known bool) { return 0, false }

// Malformed is the number of skipped rows, with the first few errors, after the run.
func (c *CSV) Malformed() (rows int64, first []error) {
	return c.malformed, c.first
}

// read reads the next case. Its zones are appended to the given ones and are valid
// as long as these. After the last case the error is io.EOF. It is a MalformedError
// for a row that makes no sense; the next call goes on behind that row.
func (c *CSV) read(into *Case, zones []allocate.Zone) ([]allocate.Zone, error) {
	record, err := c.reader.Read()
	if err != nil {
		return zones, readError(err)
	}
	line, _ := c.reader.FieldPos(0)
	if len(record) != len(c.zones)+1 {
		return zones, &MalformedError{Line: line, Reason: fmt.Sprintf("%d cells; the header has %d", len(record), len(c.zones)+1)}
	}
	into.Name = strings.TrimSpace(strings.Clone(record[0]))
	if into.Name == "" {
		return zones, &MalformedError{Line: line, Column: "name", Cell: record[0], Reason: "is empty; it must name the case"}
	}
	start := len(zones)
	for i, cell := range record[1:] {
		zone := allocate.Zone{Name: c.zones[i]}
		given, reason := parseCell(cell, &zone)
		if reason != "" {
			line, _ := c.reader.FieldPos(i + 1)
			return zones[:start], &MalformedError{Line: line, Column: zone.Name, Cell: cell, Reason: reason}
		}
		if given {
			zones = append(zones, zone)
		}
	}
	into.Zones = zones[start:len(zones):len(zones)]
	if reason := c.refused(into.Zones); reason != "" {
		return zones[:start], &MalformedError{Line: line, Reason: reason}
	}
	return zones, nil
}

// refused says why there is nothing to score in a region, if so.
func (c *CSV) refused(zones []allocate.Zone) string {
	nodes, endpoints := 0.0, 0
	for i := range zones {
		nodes += zones[i].Capacity
		endpoints += zones[i].Endpoints
	}
	// Limits are up to package allocate.
	if _, _, err := c.planner.Allocate(allocate.Region{Zones: zones}, allocate.Intent{}, allocate.Previous{}); err != nil {
		return err.Error()
	}
	switch {
	case nodes == 0:
		return "no zone has a node; at least one must, or there is no traffic"
	case endpoints == 0:
		return "no zone has an endpoint; at least one must, or there is nothing to allocate"
	}
	return ""
}

// parseCell reads a zone's nodes and endpoints. An empty cell is no zone.
func parseCell(cell string, zone *allocate.Zone) (given bool, reason string) {
	nodes, endpoints, both := strings.Cut(strings.TrimSpace(cell), " ")
	if nodes == "" {
		return false, ""
	}
	endpoints = strings.TrimLeft(endpoints, " ")
	if !both || strings.Contains(endpoints, " ") {
		return false, `must be two numbers, nodes and endpoints, such as "3 12", or empty`
	}
	n, reason := parseCount("nodes", nodes)
	if reason != "" {
		return false, reason
	}
	zone.Capacity = float64(n)
	zone.Endpoints, reason = parseCount("endpoints", endpoints)
	return reason == "", reason
}

func parseCount(what, s string) (n int, reason string) {
	n, err := strconv.Atoi(s)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Sprintf("has %s %s, which is beyond all limits", s, what)
	case err != nil:
		return 0, fmt.Sprintf("has %q %s; it must be a whole number", s, what)
	case n < 0:
		return 0, fmt.Sprintf("has %d %s; there cannot be fewer than 0", n, what)
	}
	return n, ""
}

// readError makes a MalformedError of an error of the CSV format.
func readError(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &MalformedError{Line: parse.StartLine, Reason: parse.Err.Error()}
	}
	return err
}

func (c *CSV) open() source { return &csvSource{csv: c} }

// csvSource reads the rows of a batch at a time.
type csvSource struct {
	csv *CSV

	mu      sync.Mutex
	batches int64
	cases   int64
	end     error // why there is nothing more to read
}

func (s *csvSource) fill(b *batch) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := int(batchSize(len(s.csv.zones)))
	b.zones, b.cases = slices.Grow(b.zones[:0], size*len(s.csv.zones)), slices.Grow(b.cases[:0], size)
	for len(b.cases) < size && s.end == nil {
		b.zones, s.end = s.row(b)
	}
	switch {
	case len(b.cases) > 0: // what was read before the end counts
	case errors.Is(s.end, io.EOF):
		return false, nil
	default:
		return false, fmt.Errorf("reading %s: %w", s.csv.name, s.end)
	}
	b.number, b.first = s.batches, s.cases
	s.batches++
	s.cases += int64(len(b.cases))
	return true, nil
}

// row reads one row into the batch. The error ends the reading.
func (s *csvSource) row(b *batch) ([]allocate.Zone, error) {
	var c Case
	zones, err := s.csv.read(&c, b.zones)
	if err != nil {
		var malformed *MalformedError
		if !s.csv.skipping || !errors.As(err, &malformed) {
			return zones, err
		}
		s.csv.malformed++
		if len(s.csv.first) < keptErrors {
			s.csv.first = append(s.csv.first, err)
		}
		return zones, nil
	}
	b.cases = append(b.cases, c)
	return zones, nil
}
