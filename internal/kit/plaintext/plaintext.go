// Package plaintext writes text for conditions, events, logs and terminals: numbers with nouns, lists,
// tables, and untrusted text, such as an annotation or an answer of a server.
package plaintext

import (
	"strings"
	"unicode"
)

// MaxBytes limits untrusted text.
const MaxBytes = 400

// Of returns untrusted text on one line, within MaxBytes, and without characters that are not
// printable. Such characters could move a terminal's cursor and overwrite what Vicinity prints.
func Of(text string) string {
	// Cut first: the text can be as long as an object.
	return Cut(Line(Cut(text, MaxBytes)), MaxBytes) // a replaced byte becomes three
}

// Line is Of without the limit.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Cut shortens a text to a number of bytes, at a character.
func Cut(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
