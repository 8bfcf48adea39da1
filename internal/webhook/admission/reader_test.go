package admission

import (
	"fmt"
	"strings"
	"testing"
)

func readerOf(text string) *Reader {
	r := new(Reader)
	r.reset([]byte(text))
	return r
}

// Raw values are parts of the text.
func TestReader(t *testing.T) {
	r := readerOf(` {"raw" : [1, 2] ,"text":"a\"b","none":null,"\u0061":{"b":1}, "no text":null} `)
	var got []string
	err := r.Members(func(name string) error {
		var raw []byte
		var read string
		var err error
		switch name {
		case "raw", "none":
			err = r.Raw(&raw)
			if from := strings.Index(string(r.text), "["); name == "raw" && &raw[0] != &r.text[from] {
				t.Errorf("%s is not a part of the text", raw)
			}
			got = append(got, fmt.Sprintf("%s=%s", name, raw))
		case "text", "no text":
			err = r.Text(&read)
			got = append(got, fmt.Sprintf("%s=%s", name, read))
		default:
			err = r.Skip()
			got = append(got, name)
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	if want := fmt.Sprint([]string{"raw=[1, 2]", `text=a"b`, "none=", "a", "no text="}); err != nil || fmt.Sprint(got) != want {
		t.Errorf("read %v, %v; want %s", got, err, want)
	}
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

func TestReaderOfTruths(t *testing.T) {
	for text, want := range map[string]bool{"true": true, "false": false, "null": false} {
		got := !want
		if err := readerOf(text).Bool(&got); err != nil || got != want {
			t.Errorf("%s is %t, %v", text, got, err)
		}
	}
}
