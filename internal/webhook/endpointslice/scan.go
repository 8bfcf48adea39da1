package endpointslice

import (
	"bytes"
	"errors"
	"fmt"
)

// scanner reads a JSON text from its beginning to its end, in place: what it returns
// are parts of the text. It takes nothing that is not JSON, for a patch to what the
// API server reads otherwise would fail the request.
type scanner struct {
	text []byte
	at   int
}

// maxDepth is how deep values may be nested. Slices come to about ten, with their
// managed fields.
const maxDepth = 64

var (
	errDeep    = errors.New("values are nested too deep")
	errTwice   = errors.New("a member is there twice")
	errEscaped = errors.New("the name of a member is escaped")
)

func (s *scanner) unexpected(want string) error {
	if s.at >= len(s.text) {
		return fmt.Errorf("the text ends where %s should be", want)
	}
	return fmt.Errorf("byte %d is %q where %s should be", s.at, s.text[s.at], want)
}

// peek skips blanks and returns the byte behind them, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return s.unexpected(fmt.Sprintf("%q", c))
	}
	s.at++
	return nil
}

// end makes sure that nothing follows.
func (s *scanner) end() error {
	if s.peek(); s.at < len(s.text) {
		return s.unexpected("the end")
	}
	return nil
}

// skip reads any value. What it returns is the value without blanks around it.
func (s *scanner) skip(depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	var err error
	c := s.peek()
	begin := s.at
	switch c {
	case '"':
		_, err = s.string()
	case '{':
		err = s.list('}', func() error {
			if _, err := s.string(); err != nil {
				return err
			}
			if err := s.expect(':'); err != nil {
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

// list reads what stands between brackets: items, separated by commas. The scanner is
// at the first bracket.
func (s *scanner) list(closing byte, item func() error) error {
	s.at++
	if s.peek() == closing {
		s.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.at++
		case closing:
			s.at++
			return nil
		default:
			return s.unexpected(fmt.Sprintf("a comma or %q", closing))
		}
	}
}

// members reads an object, or null, which has no members. The function reads the value
// of the member with the name given, which is without quotes. Names that somebody
// escaped are refused, for they could be names that are looked for.
func (s *scanner) members(member func(name []byte) error) error {
	if s.peek() == 'n' {
		return s.word("null")
	}
	if s.peek() != '{' {
		return s.unexpected("an object")
	}
	return s.list('}', func() error {
		name, err := s.string()
		if err != nil {
			return err
		}
		if bytes.IndexByte(name, '\\') >= 0 {
			return errEscaped
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(name[1 : len(name)-1])
	})
}

// items reads an array, or null, which has no items.
func (s *scanner) items(item func() error) error {
	if s.peek() == 'n' {
		return s.word("null")
	}
	if s.peek() != '[' {
		return s.unexpected("an array")
	}
	return s.list(']', item)
}

// raw reads any value into a place that has none yet; null is none. Values that are
// compared or copied as a whole are kept as they are written.
func (s *scanner) raw(into *[]byte) error {
	if *into != nil {
		return errTwice
	}
	value, err := s.skip(0)
	if err == nil && value[0] != 'n' {
		*into = value
	}
	return err
}

// quoted reads a string, or null, into a place that has none yet, with its quotes.
func (s *scanner) quoted(into *[]byte) error {
	if c := s.peek(); c != '"' && c != 'n' {
		return s.unexpected("a string")
	}
	return s.raw(into)
}

// string reads a string and returns it with its quotes, and escapes as they are.
func (s *scanner) string() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.unexpected("a string")
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
			return nil, s.unexpected("a character of a string")
		}
	}
	return nil, s.unexpected("the end of a string")
}

// escape reads an escape but for its last byte.
func (s *scanner) escape() error {
	s.at++
	if s.at >= len(s.text) {
		return s.unexpected("an escape")
	}
	switch s.text[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			s.at++
			if s.at >= len(s.text) || !isHex(s.text[s.at]) {
				return s.unexpected("a hexadecimal digit")
			}
		}
		return nil
	}
	return s.unexpected("an escape")
}

func (s *scanner) word(word string) error {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		return s.unexpected(word)
	}
	s.at += len(word)
	return nil
}

func (s *scanner) number() error {
	if s.at < len(s.text) && s.text[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.text) && s.text[s.at] == '0' {
		s.at++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.at < len(s.text) && s.text[s.at] == '.' {
		s.at++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.at < len(s.text) && (s.text[s.at] == 'e' || s.text[s.at] == 'E') {
		s.at++
		if s.at < len(s.text) && (s.text[s.at] == '+' || s.text[s.at] == '-') {
			s.at++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() error {
	begin := s.at
	for s.at < len(s.text) && isDigit(s.text[s.at]) {
		s.at++
	}
	if s.at == begin {
		return s.unexpected("a value")
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
