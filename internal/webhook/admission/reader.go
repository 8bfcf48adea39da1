package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Reader reads a review from its beginning to its end, in place: the values that it
// returns are parts of the text. It takes strict JSON alone, also in members that are skipped:
// an object with a member twice, or text that is not UTF-8, makes all of a review unread. That
// assumes an API server, which encodes its reviews from objects and never sends such text.
type Reader struct {
	text    []byte
	decoder jsontext.Decoder
}

// NewReader returns a Reader of any JSON.
func NewReader(text []byte) *Reader {
	r := new(Reader)
	r.reset(text)
	return r
}

// reset begins with a text.
func (r *Reader) reset(text []byte) {
	r.text = text
	r.decoder.Reset(bytes.NewBuffer(text))
}

// Position is the offset behind what was read last.
func (r *Reader) Position() int { return int(r.decoder.InputOffset()) }

// Start is the offset of what is read next.
func (r *Reader) Start() int {
	at := r.Position()
	for at < len(r.text) && strings.IndexByte(" \t\r\n,:", r.text[at]) >= 0 {
		at++
	}
	return at
}

// Part is the text between two offsets.
func (r *Reader) Part(from, to int) []byte { return r.text[from:to] }

// Kind is what is read next.
func (r *Reader) Kind() jsontext.Kind { return r.decoder.PeekKind() }

// Value reads any value.
func (r *Reader) Value() ([]byte, error) {
	value, err := r.decoder.ReadValue()
	end := r.Position()
	return r.text[end-len(value) : end], err
}

// Skip reads any value.
func (r *Reader) Skip() error { return r.decoder.SkipValue() }

// Raw reads any value; into is nil for null.
func (r *Reader) Raw(into *[]byte) error {
	value, err := r.Value()
	if *into = nil; err == nil && value[0] != 'n' {
		*into = value
	}
	return err
}

// Quoted reads a string with its quotes and escapes; into is nil for null.
func (r *Reader) Quoted(into *[]byte) error {
	if err := r.want('"', "a string"); err != nil {
		return err
	}
	return r.Raw(into)
}

// Text reads a string; into is empty for null.
func (r *Reader) Text(into *string) error {
	var quoted []byte
	if err := r.Quoted(&quoted); err != nil || quoted == nil {
		return err
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	*into = string(text)
	return err
}

// Bool reads true or false; into is false for null.
func (r *Reader) Bool(into *bool) error {
	if kind := r.Kind(); kind != 't' {
		if err := r.want('f', "true or false"); err != nil {
			return err
		}
	}
	value, err := r.Value()
	*into = err == nil && value[0] == 't'
	return err
}

// Members reads an object, or null, which has no members. The function must read the value
// of the member whose name it is given.
func (r *Reader) Members(member func(name []byte) error) error {
	return r.list('{', "an object", func() error {
		quoted, err := r.Value()
		if err != nil {
			return err
		}
		name := quoted[1 : len(quoted)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			if name, err = jsontext.AppendUnquote(nil, quoted); err != nil {
				return err
			}
		}
		return member(name)
	})
}

// Items reads an array, or null, which has no items. The function must read one item.
func (r *Reader) Items(item func() error) error { return r.list('[', "an array", item) }

func (r *Reader) list(opening jsontext.Kind, what string, item func() error) error {
	if err := r.want(opening, what); err != nil {
		return err
	}
	if token, err := r.decoder.ReadToken(); err != nil || token.Kind() == 'n' {
		return err
	}
	for closing := opening + 2; r.Kind() != closing; { // of both brackets in ASCII
		if err := item(); err != nil {
			return err
		}
	}
	_, err := r.decoder.ReadToken()
	return err
}

// want fails unless a value of a kind, or null, is next.
func (r *Reader) want(kind jsontext.Kind, what string) error {
	switch found := r.Kind(); found {
	case kind, 'n':
		return nil
	case jsontext.KindInvalid:
		_, err := r.decoder.ReadToken()
		return err
	default:
		return fmt.Errorf("there is %v at byte %d where %s should be", found, r.Start(), what)
	}
}

// end fails unless nothing follows.
func (r *Reader) end() error {
	switch _, err := r.decoder.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("something follows the review")
}
