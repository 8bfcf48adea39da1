package conventions_test

import (
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Patterns of sentences that have to be read twice. They are written so that they do not match themselves, and do not match
// http.NoBody.
var (
	heavyWords    = regexp.MustCompile(`\b([Nn]o[b]ody|(?i:who[e]ver|some[b]ody|is to [b]e|are to [b]e|in v[a]in|those t[h]at|of w[h]ich))\b`)
	heavyComments = regexp.MustCompile(`(?i)^//\s*(what\s+is|(\w+\s+)?is\s+what)\b`)
)

// vagueNames are parts of names that do not say what they name.
var vagueNames = []string{"told", "said", "aside", "heir", "patience"}

func TestLanguageIsPlain(t *testing.T) {
	forEachText(t, func(name, text string) {
		if name == "LICENSE" {
			return
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			if found := heavyWords.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: say who does what, in the order in which it is read", name, n, found)
			}
		}
		if strings.HasSuffix(name, ".go") {
			checkGoLanguage(t, name, text)
		}
	})
}

func checkGoLanguage(t *testing.T, name, text string) {
	t.Helper()
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	begins := true // of a group of comments
	for {
		at, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return
		case token.COMMENT:
			if found := heavyComments.FindString(literal); begins && found != "" {
				t.Errorf("%s: comment begins with %q: name the thing, then its contract", files.Position(at), found)
			}
		case token.IDENT:
			for _, word := range wordsOf(literal) {
				if slices.Contains(vagueNames, word) {
					t.Errorf("%s: %q in the name %s: use the domain's noun or verb", files.Position(at), word, literal)
				}
			}
		}
		begins = kind != token.COMMENT
	}
}

// wordsOf splits a name at its capital letters, and returns the words in lower case.
func wordsOf(name string) []string {
	var words []string
	begin := 0
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			words = append(words, strings.ToLower(name[begin:i]))
			begin = i
		}
	}
	return append(words, strings.ToLower(name[begin:]))
}
