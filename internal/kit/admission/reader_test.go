package admission

import (
	"strings"
	"testing"
)

func readerOf(text string) *Reader {
	r := new(Reader)
	r.reset([]byte(text))
	return r
}

func TestReaderErrors(t *testing.T) {
	members := func(r *Reader) error { return r.Members(func(string) error { return r.Skip() }) }
	for _, test := range []struct {
		name, text string
		read       func(*Reader) error
		want       string
	}{
		{"no object", `[]`, members, "[ after byte 0 instead of an object"},
		{"no string", ` 7`, func(r *Reader) error { return r.Text(new(string)) }, "number after byte 0 instead of a string"},
		{"no boolean", `"true"`, func(r *Reader) error { return r.Bool(new(bool)) }, "string after byte 0 instead of true or false"},
		{"nothing", ` `, members, "EOF"},
		{"half", `{"a":1`, members, "unexpected EOF"},
		{"no JSON", `{"a":01}`, members, "invalid character '1'"},
		{"a member twice", `{"a":1,"\u0061":2}`, members, "duplicate object member name"},
		{"a member twice in a value that is skipped", `{"a":{"b":1,"b":2}}`, members, "duplicate object member name"},
		{"no UTF-8", "{\"a\":\"\xff\"}", members, "invalid UTF-8"},
		{"text after the review", ` {}`, (*Reader).end, "text follows the review"},
	} {
		if err := test.read(readerOf(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}
