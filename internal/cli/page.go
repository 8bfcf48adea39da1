package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/explain"
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

// page writes paragraphs, as plain text or Markdown. After an error it writes
// nothing more.
type page struct {
	w        io.Writer
	markdown bool
	begun    bool
	err      error
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
	if p.markdown {
		text = "## " + text
	}
	p.printf("%s\n", text)
}

// title writes what a table or list is about, if that has to be said.
func (p *page) title(text string) {
	switch {
	case text == "":
	case p.markdown:
		p.printf("%s:\n\n", text)
	default:
		p.printf("  %s:\n", text)
	}
}

// list writes lines that belong together, after a title if there is one.
func (p *page) list(title string, lines []string) {
	if p.markdown || title != "" {
		p.gap()
	}
	p.title(title)
	bullet := "  "
	switch {
	case p.markdown:
		bullet = "- "
	case title != "":
		bullet = "    "
	}
	for _, line := range lines {
		p.printf("%s%s\n", bullet, line)
	}
}

// table writes a table under its title.
func (p *page) table(title string, table explain.Table) {
	p.gap()
	p.title(title)
	switch {
	case p.err != nil:
	case p.markdown:
		p.err = table.Markdown(p.w)
	case title != "":
		p.err = table.Text(p.w, "    ")
	default:
		p.err = table.Text(p.w, "")
	}
}

// count is a number with its noun.
func count(n int64, one, many string) string { return explain.Count(n, one, many) }

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
