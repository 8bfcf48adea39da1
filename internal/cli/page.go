package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/plaintext"
)

// formatOf is what writes a value as --output says: in one of the forms that a command has
// for people, or as JSON or YAML. allowed names all of them.
func formatOf[T any](output, allowed string, forms map[string]func(io.Writer, T) error) (func(io.Writer, T) error, error) {
	if write, found := forms[output]; found {
		return write, nil
	}
	switch output {
	case "json":
		return func(w io.Writer, value T) error { return encodeJSON(w, value) }, nil
	case "yaml":
		return func(w io.Writer, value T) error { return encodeYAML(w, value) }, nil
	}
	return nil, command.UsageErrorf("--output %q is unknown; it must be %s", output, allowed)
}

func encodeJSON(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
}

func encodeYAML(w io.Writer, document any) error {
	text, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// page writes paragraphs. After an error it writes nothing more.
type page struct {
	w     io.Writer
	begun bool
	err   error
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// gap separates what follows from what is above.
func (p *page) gap() {
	if p.begun {
		p.printf("\n")
	}
	p.begun = true
}

func (p *page) heading(text string) {
	p.gap()
	p.printf("%s\n", text)
}

// list writes lines that belong together, after a title if there is one. Without lines it
// writes nothing.
func (p *page) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	indent := "  "
	if title != "" {
		p.gap()
		p.printf("  %s:\n", title)
		indent = "    "
	}
	for _, line := range lines {
		p.printf("%s%s\n", indent, line)
	}
}

// table writes a table, under its title if there is one.
func (p *page) table(title string, table plaintext.Table) {
	indent := ""
	p.gap()
	if title != "" {
		p.printf("  %s:\n", title)
		indent = "    "
	}
	if p.err == nil {
		p.err = table.Text(p.w, indent)
	}
}

// mostRows is how many rows of a long table a text shows.
const mostRows = 20

// longTable writes the first rows of a table.
func (p *page) longTable(title string, table plaintext.Table) {
	if len(table.Rows) == 0 {
		p.list(title, []string{"none"})
		return
	}
	more := len(table.Rows) - mostRows
	table.Rows = table.Rows[:min(mostRows, len(table.Rows))]
	p.table(title, table)
	if more > 0 {
		p.printf("    and %d more; -o json has all\n", more)
	}
}

// nextSteps are what to do.
func nextSteps(next []string) []string {
	if len(next) == 0 {
		return []string{"nothing to do"}
	}
	return next
}

// count is a number with its noun.
func count(n int64, one, many string) string { return plaintext.Count(n, one, many) }

// oneDecimal is a fraction in percent, for columns.
func oneDecimal(fraction float64) string {
	return strconv.FormatFloat(100*fraction, 'f', 1, 64)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
