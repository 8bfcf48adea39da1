// Package plaintext writes what others wrote, such as the value of an annotation or what a server
// answers, for a condition, an event, a log or a terminal. It decides nothing about what it means.
package plaintext

import (
	"strings"
	"unicode"
)

// MaxBytes is how long such a text is at most.
const MaxBytes = 400

// Of is a text of somebody else on one line, in at most MaxBytes, and without characters that are
// not printed. Those could move the cursor of the terminal that shows it, and write over what
// Vicinity says.
func Of(text string) string {
	// What is cut off is not looked at: such a text may be as long as an object can be.
	return cut(Line(cut(text))) // what replaces a byte has three
}

// Line is such a text in its whole length, for one that is bounded otherwise.
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

// cut shortens a text, in whole letters.
func cut(text string) string {
	const more = "…"
	if len(text) <= MaxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:MaxBytes-len(more)], "") + more
}
