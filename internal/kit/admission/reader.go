package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Reader reads a review once, from the beginning to the end. It requires strict JSON, even in skipped members: a duplicate member or
// invalid UTF-8 makes the whole review unreadable. An API server encodes reviews from objects and never sends such text.
type Reader struct {
	text    []byte
	decoder jsontext.Decoder
}

func (r *Reader) reset(text []byte) {
	r.text = text
	r.decoder.Reset(bytes.NewBuffer(text))
}

// Skip reads any value.
func (r *Reader) Skip() error { return r.decoder.SkipValue() }

// Raw reads any value as a part of the text. It sets into to nil for null.
func (r *Reader) Raw(into *[]byte) error {
	value, err := r.decoder.ReadValue()
	if *into = nil; err == nil && value[0] != 'n' {
		end := int(r.decoder.InputOffset())
		*into = r.text[end-len(value) : end]
	}
	return err
}

// Text reads a string. For null it leaves into unchanged.
func (r *Reader) Text(into *string) error {
	if err := r.want('"', "a string"); err != nil {
		return err
	}
	token, err := r.decoder.ReadToken()
	if err == nil && token.Kind() == '"' {
		*into = token.String()
	}
	return err
}

// Bool reads true or false. It sets into to false for null.
func (r *Reader) Bool(into *bool) error {
	if r.decoder.PeekKind() != 't' {
		if err := r.want('f', "true or false"); err != nil {
			return err
		}
	}
	token, err := r.decoder.ReadToken()
	*into = err == nil && token.Kind() == 't'
	return err
}

// Members reads an object, or null, which has no members. The function must read the value of the named member.
func (r *Reader) Members(member func(name string) error) error {
	if err := r.want('{', "an object"); err != nil {
		return err
	}
	if token, err := r.decoder.ReadToken(); err != nil || token.Kind() == 'n' {
		return err
	}
	for r.decoder.PeekKind() != '}' {
		name, err := r.decoder.ReadToken()
		if err != nil {
			return err
		}
		if err := member(name.String()); err != nil {
			return err
		}
	}
	_, err := r.decoder.ReadToken()
	return err
}

// want fails unless the next value has a kind or is null.
func (r *Reader) want(kind jsontext.Kind, what string) error {
	switch found := r.decoder.PeekKind(); found {
	case kind, 'n':
		return nil
	case jsontext.KindInvalid:
		_, err := r.decoder.ReadToken()
		return err
	default:
		return fmt.Errorf("%v after byte %d instead of %s", found, r.decoder.InputOffset(), what)
	}
}

// end fails if more text follows.
func (r *Reader) end() error {
	switch _, err := r.decoder.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("text follows the review")
}

// Request has the members of a request without its objects. Members that the API server leaves out are empty.
type Request struct {
	UID, Operation, Namespace, Name, SubResource, User string

	DryRun bool
}

// read reads a review and has the Judge read the objects. On failure the request keeps the members read so far.
func (r *Request) read(review *Reader, judge Judge) error {
	err := review.Members(func(name string) error {
		if name != "request" {
			return review.Skip()
		}
		return review.Members(func(name string) error { return r.readMember(review, name, judge) })
	})
	if err != nil {
		return err
	}
	return review.end()
}

func (r *Request) readMember(review *Reader, name string, judge Judge) error {
	switch name {
	case "uid":
		return review.Text(&r.UID)
	case "operation":
		return review.Text(&r.Operation)
	case "namespace":
		return review.Text(&r.Namespace)
	case "name":
		return review.Text(&r.Name)
	case "subResource":
		return review.Text(&r.SubResource)
	case "dryRun":
		return review.Bool(&r.DryRun)
	case "userInfo":
		return review.Members(func(name string) error {
			if name == "username" {
				return review.Text(&r.User)
			}
			return review.Skip()
		})
	case "object":
		return judge.Read(review, false)
	case "oldObject":
		return judge.Read(review, true)
	}
	return review.Skip()
}
