// Package jsonscan reads JSON in place: what it returns are parts of the text, and it
// needs no memory of its own. It is for reviews, of which webhooks need a few members and
// have to change the text around them by its exact bytes. It accepts what is JSON, as
// encoding/json does, unless values are nested too deep; it is stricter only about the
// names of members that the caller looks at.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Scanner reads a text from its beginning to its end. Its methods skip blanks first.
type Scanner struct {
	text []byte
	at   int
}

// New returns a scanner at the beginning of a text.
func New(text []byte) *Scanner { return &Scanner{text: text} }

// maxDepth is how deep values may be nested. Slices come to about ten, with their
// managed fields.
const maxDepth = 64

// ErrTwice says that an object has a member twice that may be there once.
var ErrTwice = errors.New("a member is there twice")

var (
	errDeep    = errors.New("values are nested too deep")
	errEscaped = errors.New("the name of a member is escaped")
)

// Unexpected is the error that something else was wanted here.
func (s *Scanner) Unexpected(want string) error {
	if s.at >= len(s.text) {
		return fmt.Errorf("the text ends where %s should be", want)
	}
	return fmt.Errorf("byte %d is %q where %s should be", s.at, s.text[s.at], want)
}

// Position is the offset of the next byte to read.
func (s *Scanner) Position() int { return s.at }

// Part is the text between two positions.
func (s *Scanner) Part(from, to int) []byte { return s.text[from:to] }

// Peek returns the next byte that is no blank without reading it, or 0 at the end.
func (s *Scanner) Peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// End fails unless only blanks follow.
func (s *Scanner) End() error {
	if s.Peek(); s.at < len(s.text) {
		return s.Unexpected("the end")
	}
	return nil
}

// Skip reads any value and returns it, without the blanks around it.
func (s *Scanner) Skip() ([]byte, error) { return s.skip(0) }

func (s *Scanner) skip(depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	var err error
	c := s.Peek()
	begin := s.at
	switch c {
	case '"':
		_, err = s.string()
	case '{':
		err = s.list('}', func() error {
			if _, err := s.string(); err != nil {
				return err
			}
			if err := s.colon(); err != nil {
				return err
			}
			_, err := s.skip(depth + 1)
			return err
		})
	case '[':
		err = s.list(']', func() error {
			_, err := s.skip(depth + 1)
			return err
		})
	case 't':
		err = s.word("true")
	case 'f':
		err = s.word("false")
	case 'n':
		err = s.word("null")
	default:
		err = s.number()
	}
	return s.text[begin:s.at], err
}

// list reads items between brackets, separated by commas. The scanner is at the first
// bracket.
func (s *Scanner) list(closing byte, item func() error) error {
	s.at++
	if s.Peek() == closing {
		s.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.Peek() {
		case ',':
			s.at++
		case closing:
			s.at++
			return nil
		default:
			return s.Unexpected(fmt.Sprintf("a comma or %q", closing))
		}
	}
}

// Members reads an object, or null, which has no members. The function must read the value
// of the member whose name it is given. A name with escapes is an error: it could be one
// that the caller looks for.
func (s *Scanner) Members(member func(name []byte) error) error {
	switch s.Peek() {
	case 'n':
		return s.word("null")
	case '{':
	default:
		return s.Unexpected("an object")
	}
	return s.list('}', func() error {
		name, err := s.string()
		if err != nil {
			return err
		}
		if bytes.IndexByte(name, '\\') >= 0 {
			return errEscaped
		}
		if err := s.colon(); err != nil {
			return err
		}
		return member(name[1 : len(name)-1])
	})
}

// Items reads an array, or null, which has no items. The function must read one item.
func (s *Scanner) Items(item func() error) error {
	switch s.Peek() {
	case 'n':
		return s.word("null")
	case '[':
		return s.list(']', item)
	}
	return s.Unexpected("an array")
}

// Raw reads any value but null into a place that has none yet.
func (s *Scanner) Raw(into *[]byte) error {
	if *into != nil {
		return ErrTwice
	}
	value, err := s.Skip()
	if err == nil && value[0] != 'n' {
		*into = value
	}
	return err
}

// Quoted reads a string, or null, into a place that has none yet, with its quotes and
// escapes.
func (s *Scanner) Quoted(into *[]byte) error {
	if c := s.Peek(); c != '"' && c != 'n' {
		return s.Unexpected("a string")
	}
	return s.Raw(into)
}

// Text reads a string, or null, into a place that has none yet, and resolves its escapes.
func (s *Scanner) Text(into *string) error {
	if *into != "" {
		return ErrTwice
	}
	var quoted []byte
	if err := s.Quoted(&quoted); err != nil || quoted == nil {
		return err
	}
	if bytes.IndexByte(quoted, '\\') >= 0 || !utf8.Valid(quoted) {
		return json.Unmarshal(quoted, into)
	}
	*into = string(quoted[1 : len(quoted)-1])
	return nil
}

// string reads a string and returns it with its quotes and escapes.
func (s *Scanner) string() ([]byte, error) {
	if s.Peek() != '"' {
		return nil, s.Unexpected("a string")
	}
	begin := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[begin:s.at], nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.Unexpected("a character of a string")
		}
	}
	return nil, s.Unexpected("the end of a string")
}

// escape reads an escape but for its last byte.
func (s *Scanner) escape() error {
	s.at++
	if s.at >= len(s.text) {
		return s.Unexpected("an escape")
	}
	switch s.text[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			s.at++
			if s.at >= len(s.text) || !isHex(s.text[s.at]) {
				return s.Unexpected("a hexadecimal digit")
			}
		}
		return nil
	}
	return s.Unexpected("an escape")
}

func (s *Scanner) colon() error {
	if s.Peek() != ':' {
		return s.Unexpected("a colon")
	}
	s.at++
	return nil
}

func (s *Scanner) word(word string) error {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		return s.Unexpected(word)
	}
	s.at += len(word)
	return nil
}

func (s *Scanner) number() error {
	s.accept("-")
	if !s.accept("0") {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.accept(".") {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.accept("eE") {
		s.accept("+-")
		return s.digits()
	}
	return nil
}

// accept reads the next byte if it is one of some.
func (s *Scanner) accept(some string) bool {
	if s.at < len(s.text) && strings.IndexByte(some, s.text[s.at]) >= 0 {
		s.at++
		return true
	}
	return false
}

func (s *Scanner) digits() error {
	begin := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		s.at++
	}
	if s.at == begin {
		return s.Unexpected("a value")
	}
	return nil
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }
