package admission

import (
	"fmt"
	"strings"
	"testing"
)

// Values are parts of the text, by offsets that hold for it.
func TestReaderIsInPlace(t *testing.T) {
	text := []byte(` {"raw" : [1, 2] ,"quoted":"a\"b","text":"a\"b","none":null,"\u0061":[{"b":1} , null]} `)
	r := NewReader(text)
	var got []string
	note := func(name []byte, value any) { got = append(got, fmt.Sprintf("%s=%v", name, value)) }
	err := r.Members(func(name []byte) error {
		var raw []byte
		var read string
		var err error
		switch string(name) {
		case "raw":
			from := r.Start()
			err = r.Raw(&raw)
			if &raw[0] != &text[from] || string(r.Part(from, r.Position())) != string(raw) {
				t.Errorf("%s is not the text from %d to %d", raw, from, r.Position())
			}
			note(name, string(raw))
		case "quoted":
			err = r.Quoted(&raw)
			note(name, string(raw))
		case "text":
			err = r.Text(&read)
			note(name, read)
		case "none":
			raw = text
			err = r.Quoted(&raw)
			note(name, raw == nil)
		case "a":
			err = r.Items(func() error {
				note(name, fmt.Sprintf("%s at %d", r.Kind(), r.Start()))
				return r.Members(func([]byte) error { return r.Skip() })
			})
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	at := strings.Index(string(text), `{"b"`)
	want := fmt.Sprint([]string{
		"raw=[1, 2]", `quoted="a\"b"`, `text=a"b`, "none=true", fmt.Sprintf("a={ at %d", at), fmt.Sprintf("a=null at %d", at+len(`{"b":1} , `)),
	})
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("read %v, %v; want %s", got, err, want)
	}
}

func TestReaderErrors(t *testing.T) {
	members := func(r *Reader) error { return r.Members(func([]byte) error { return r.Skip() }) }
	for _, test := range []struct {
		name, text string
		read       func(*Reader) error
		want       string
	}{
		{"no object", `[]`, members, "there is [ at byte 0 where an object should be"},
		{"no array", ` {}`, func(r *Reader) error { return r.Items(nil) }, "there is { at byte 1 where an array should be"},
		{"no string", ` 7`, func(r *Reader) error { return r.Text(new(string)) }, "there is number at byte 1 where a string should be"},
		{"no truth", `"true"`, func(r *Reader) error { return r.Bool(new(bool)) }, "there is string at byte 0 where true or false should be"},
		{"nothing", ` `, members, "EOF"},
		{"half", `{"a":1`, members, "unexpected EOF"},
		{"no JSON", `{"a":01}`, members, "invalid character '1'"},
		{"a member twice", `{"a":1,"\u0061":2}`, members, "duplicate object member name"},
		{"a member twice in a value that is skipped", `{"a":{"b":1,"b":2}}`, members, "duplicate object member name"},
		{"no UTF-8", "{\"a\":\"\xff\"}", members, "invalid UTF-8"},
		{"more", ` {}`, (*Reader).end, "something follows"},
	} {
		if err := test.read(NewReader([]byte(test.text))); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

func TestReaderOfTruths(t *testing.T) {
	for text, want := range map[string]bool{"true": true, "false": false, "null": false} {
		got := !want
		if err := NewReader([]byte(text)).Bool(&got); err != nil || got != want {
			t.Errorf("%s is %t, %v", text, got, err)
		}
	}
}
