// Package plaintext writes for conditions, events, logs and terminals: numbers with their nouns, lists,
// tables, and text of strangers, such as the value of an annotation or the answer of a server. It does
// not know what the text means.
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
	return Cut(Line(Cut(text, MaxBytes)), MaxBytes) // what replaces a byte has three
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

// Cut shortens a text to so many bytes, in whole letters.
func Cut(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
