package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// text is a part of a file, and the line of the file that it starts on.
type text struct {
	data []byte
	line int
}

// document is one value, as JSON.
type document struct {
	json json.RawMessage
	line int
}

// syntaxError is text that is no value.
type syntaxError struct {
	line int
	err  error
}

func (e *syntaxError) Error() string { return e.err.Error() }

// splitDocuments cuts a file before each line that starts a YAML document, which may
// have content, and after each line that only ends one.
func splitDocuments(data []byte) []text {
	var parts []text
	current := text{line: 1}
	line := 0
	for piece := range bytes.Lines(data) {
		line++
		starts := bytes.HasPrefix(piece, []byte("---")) && len(bytes.TrimSpace(piece[3:min(4, len(piece))])) == 0
		ends := bytes.Equal(bytes.TrimRight(piece, " \t\r\n"), []byte("..."))
		switch {
		case starts:
			parts = append(parts, current)
			current = text{line: line, data: slices.Clone(piece)}
		case ends:
			parts = append(parts, current)
			current = text{line: line + 1}
		default:
			current.data = append(current.data, piece...)
		}
	}
	return append(parts, current)
}

// marker is the start of a YAML document, which may stand before JSON too.
var marker = regexp.MustCompile(`\A---[ \t]*\r?\n`)

// values reads what is in the text: one YAML document, or any number of JSON values
// in a row. Together with an error come the values before it.
func (t text) values() ([]document, error) {
	t.data = bytes.TrimPrefix(t.data, []byte("\xef\xbb\xbf")) // a byte order mark
	body := t
	if start := marker.Find(t.data); start != nil {
		body = text{t.data[len(start):], t.line + 1}
	}
	if !bytes.HasPrefix(bytes.TrimLeft(body.data, " \t\r\n"), []byte("{")) {
		return t.yaml()
	}
	documents, err := body.jsonStream()
	if err != nil && len(documents) == 0 {
		if flow, found := body.flowMap(); found {
			return []document{flow}, nil
		}
	}
	return documents, err
}

// flowMap reads a map that YAML allows in braces and JSON does not. The parser stops
// where a document ends, so the map is put into a list: that has one item only if
// nothing comes after the map.
func (t text) flowMap() (document, bool) {
	value, err := yaml.YAMLToJSONStrict(slices.Concat([]byte("[\n"), t.data, []byte("\n]")))
	if err != nil {
		return document{}, false
	}
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil || len(list) != 1 {
		return document{}, false
	}
	return document{list[0], t.line}, true
}

func (t text) jsonStream() ([]document, error) {
	var documents []document
	decoder := json.NewDecoder(bytes.NewReader(t.data))
	for {
		start := int(decoder.InputOffset())
		start += len(t.data[start:]) - len(bytes.TrimLeft(t.data[start:], " \t\r\n"))
		var value json.RawMessage
		err := decoder.Decode(&value)
		if err == io.EOF {
			return documents, nil
		}
		if err != nil {
			at := len(t.data) // the end came too early
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) {
				at = min(int(syntax.Offset), at)
			}
			return documents, &syntaxError{t.lineAt(at), err}
		}
		documents = append(documents, document{value, t.lineAt(start)})
	}
}

// lineAt is the line of the file at an offset.
func (t text) lineAt(offset int) int {
	return t.line + bytes.Count(t.data[:offset], []byte("\n"))
}

// yamlLine is how the YAML parser says where an error is.
var yamlLine = regexp.MustCompile(`\bline (\d+): `)

func (t text) yaml() ([]document, error) {
	value, err := yaml.YAMLToJSONStrict(t.data)
	if err != nil {
		message := strings.TrimPrefix(strings.TrimPrefix(oneLine(err.Error()), "error converting YAML to JSON: "), "yaml: ")
		line := t.line
		if found := yamlLine.FindStringSubmatchIndex(message); found != nil {
			if relative, err := strconv.Atoi(message[found[2]:found[3]]); err == nil && relative > 0 {
				// The parser counts some characters as line ends that editors do not.
				line = min(line+relative-1, t.lineAt(len(t.data)))
			}
			message = message[:found[0]] + message[found[1]:]
		}
		return nil, &syntaxError{line, errors.New(message)}
	}
	if string(value) == "null" {
		return nil, nil // only comments, or nothing
	}
	first := bytes.TrimPrefix(t.data, []byte("---"))
	skipped := len(t.data) - len(bytes.TrimLeft(first, " \t\r\n"))
	return []document{{value, t.lineAt(skipped)}}, nil
}

// oneLine joins the lines of a message.
func oneLine(message string) string {
	return strings.Join(strings.Fields(message), " ")
}
