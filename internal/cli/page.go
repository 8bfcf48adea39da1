package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// outputFlag is --output.
type outputFlag struct {
	form    string
	allowed []string // the first is the default
}

func (o *outputFlag) add(flags *pflag.FlagSet, allowed ...string) {
	o.allowed = allowed
	o.form = allowed[0]
	flags.VarP(o, "output", "o", "`FORMAT`: "+o.allowedText())
}

func (o *outputFlag) allowedText() string {
	last := len(o.allowed) - 1
	return strings.Join(o.allowed[:last], ", ") + " or " + o.allowed[last]
}

func (o *outputFlag) String() string { return o.form }

func (*outputFlag) Type() string { return "string" }

func (o *outputFlag) Set(form string) error {
	if !slices.Contains(o.allowed, form) {
		return errors.New("it must be " + o.allowedText())
	}
	o.form = form
	return nil
}

// write writes a value as JSON or YAML, or calls text for other formats.
func (o *outputFlag) write(w io.Writer, value any, text func(*page)) error {
	switch o.form {
	case "json":
		return encodeJSON(w, value)
	case "yaml":
		return encodeYAML(w, value)
	}
	p := &page{w: w}
	text(p)
	return p.err
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

// gap separates paragraphs.
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

// list writes indented lines below a title, which may be empty. Without lines it writes nothing.
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

// mostRows limits the rows of a long table in text.
const mostRows = 20

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

func nextSteps(next []string) []string {
	if len(next) == 0 {
		return []string{"nothing to do"}
	}
	return next
}

func count(n int64, one, many string) string { return plaintext.Count(n, one, many) }

// oneDecimal formats a fraction as a percentage.
func oneDecimal(fraction float64) string {
	return strconv.FormatFloat(100*fraction, 'f', 1, 64)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
