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
		{"no object", `[]`, members, "there is [ behind byte 0 where an object should be"},
		{"no string", ` 7`, func(r *Reader) error { return r.Text(new(string)) }, "there is number behind byte 0 where a string should be"},
		{"no truth", `"true"`, func(r *Reader) error { return r.Bool(new(bool)) }, "there is string behind byte 0 where true or false should be"},
		{"nothing", ` `, members, "EOF"},
		{"half", `{"a":1`, members, "unexpected EOF"},
		{"no JSON", `{"a":01}`, members, "invalid character '1'"},
		{"a member twice", `{"a":1,"\u0061":2}`, members, "duplicate object member name"},
		{"a member twice in a value that is skipped", `{"a":{"b":1,"b":2}}`, members, "duplicate object member name"},
		{"no UTF-8", "{\"a\":\"\xff\"}", members, "invalid UTF-8"},
		{"more", ` {}`, (*Reader).end, "something follows"},
	} {
		if err := test.read(readerOf(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}
