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

// CSV is a data set that is read row by row. The header names the columns: "name", then the zones.
// Each row is a case: its name, then a cell for each zone with its number of nodes, a blank and its
// number of endpoints, such as "3 12". The cell is empty if the region does not have the zone.
//
// A CSV is read once, by one run.
type CSV struct {
	name    string
	zones   []string
	reader  *csv.Reader
	planner allocate.Planner

	mu    sync.Mutex
	cases int64
	end   error // why reading ended
}

// rowErrorf returns an error of one row.
func rowErrorf(line int, format string, args ...any) error {
	return fmt.Errorf("line %d: %w", line, fmt.Errorf(format, args...))
}

// cellError returns an error of one cell.
func cellError(line int, column, cell, reason string) error {
	return fmt.Errorf("line %d, column %q: cell %q %s", line, column, cell, reason)
}

// NewCSV reads the header of a data set with that name.
func NewCSV(r io.Reader, name string) (*CSV, error) {
	buffered := bufio.NewReader(r)
	// Spreadsheets write a byte order mark first.
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		if _, err := buffered.Discard(3); err != nil {
			return nil, err
		}
	}
	c := &CSV{name: name, reader: csv.NewReader(buffered)}
	c.reader.ReuseRecord = true
	c.reader.FieldsPerRecord = -1 // the reader's own error would name the line in another form
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
	return fmt.Errorf("reading %s: %w", c.name, rowErrorf(line, format, args...))
}

// Name returns the name given to NewCSV.
func (c *CSV) Name() string { return c.name }

// Cases reports unknown: the number is not known before the last row.
func (c *CSV) Cases() (n int64, known bool) { return 0, false }

// read adds the next row to the batch. After the last row the error is io.EOF.
func (c *CSV) read(b *batch) error {
	record, err := c.reader.Read()
	if err != nil {
		return readError(err)
	}
	line, _ := c.reader.FieldPos(0)
	if len(record) != len(c.zones)+1 {
		return rowErrorf(line, "%d cells; the header has %d", len(record), len(c.zones)+1)
	}
	name := strings.TrimSpace(strings.Clone(record[0]))
	if name == "" {
		return cellError(line, "name", record[0], "is empty; it must name the case")
	}
	start := len(b.zones)
	for i, cell := range record[1:] {
		zone := allocate.Zone{Name: c.zones[i]}
		given, reason := parseCell(cell, &zone)
		if reason != "" {
			line, _ := c.reader.FieldPos(i + 1)
			return cellError(line, zone.Name, cell, reason)
		}
		if given {
			b.zones = append(b.zones, zone)
		}
	}
	zones := b.zones[start:len(b.zones):len(b.zones)]
	if reason := c.refused(zones); reason != "" {
		return rowErrorf(line, "%s", reason)
	}
	b.cases = append(b.cases, Case{Name: name, Zones: zones})
	return nil
}

// refused says why a region cannot be scored, empty if it can.
func (c *CSV) refused(zones []allocate.Zone) string {
	nodes, endpoints := 0.0, 0
	for i := range zones {
		nodes += zones[i].Capacity
		endpoints += zones[i].Endpoints
	}
	// Package allocate checks the limits.
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

// parseCell reads a zone's nodes and endpoints. An empty cell means no zone.
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

// readError words an error of the CSV format in the form of other row errors.
func readError(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return rowErrorf(parse.StartLine, "%w", parse.Err)
	}
	return err
}

func (c *CSV) open() source { return c.fill }

// fill reads the rows of a batch.
func (c *CSV) fill(b *batch) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int(batchSize(len(c.zones)))
	b.zones, b.cases = slices.Grow(b.zones[:0], size*len(c.zones)), slices.Grow(b.cases[:0], size)
	for len(b.cases) < size && c.end == nil {
		c.end = c.read(b)
	}
	switch {
	case len(b.cases) > 0: // the rows before the end count
	case errors.Is(c.end, io.EOF):
		return false, nil
	default:
		return false, fmt.Errorf("reading %s: %w", c.name, c.end)
	}
	b.first = c.cases
	c.cases += int64(len(b.cases))
	return true, nil
}
