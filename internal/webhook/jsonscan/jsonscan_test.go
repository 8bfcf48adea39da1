package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// tree reads a value as encoding/json does, of which the last of equal names counts.
func tree(s *Scanner, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	switch s.Peek() {
	case '{':
		members := map[string]any{}
		err := s.Members(func(name []byte) error {
			var text string
			if err := json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &text); err != nil {
				return err
			}
			value, err := tree(s, depth+1)
			members[text] = value
			return err
		})
		return members, err
	case '[':
		items := []any{}
		err := s.Items(func() error {
			item, err := tree(s, depth+1)
			items = append(items, item)
			return err
		})
		return items, err
	case '"':
		var text string
		err := s.Text(&text)
		return text, err
	}
	raw, err := s.Skip()
	if err != nil {
		return nil, err
	}
	return decoded(raw)
}

func decoded(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// FuzzScanner compares the scanner with encoding/json: it takes the same texts and reads
// the same values, but for nesting and escaped names.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{
		`{"a":{"b":[1,-0.5e+3,true,false,null]},"c":"d\n\u00e9"}`, ` [ ] `, `""`, `{"a":1,"a":2}`, `{"\u0061":1}`, `"\ud800"`,
		`01`, `1.`, `-`, `1e`, `+1`, `tru`, `"`, `"\x"`, `"\u12g4"`, "\"\x01\"", "\"\xff\"", `{"a"}`, `{"a":}`, `{,}`, `[1,]`, `[1 2]`, `{} {}`, ``,
		strings.Repeat("[", 70) + strings.Repeat("]", 70),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := New(text)
		value, err := s.Skip()
		if err == nil {
			err = s.End()
		}
		if errors.Is(err, errDeep) {
			return
		}
		if valid := json.Valid(text); valid != (err == nil) {
			t.Fatalf("%q: valid JSON is %t, the scanner says %v", text, valid, err)
		}
		if err != nil {
			return
		}
		if trimmed := bytes.Trim(text, " \t\r\n"); !bytes.Equal(value, trimmed) {
			t.Errorf("the value of %q is %q", text, value)
		}
		got, err := tree(New(text), 0)
		if errors.Is(err, errEscaped) {
			return
		}
		want, failed := decoded(text)
		if err != nil || failed != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %#v, %v; want %#v, %v", text, got, err, want, failed)
		}
	})
}

func TestPlaces(t *testing.T) {
	s := New([]byte(` {"raw": [1, 2] ,"quoted":"a\"b","text":"a\"b","none":null} `))
	var raw, quoted, none []byte
	var text string
	from := 0
	err := s.Members(func(name []byte) error {
		switch string(name) {
		case "raw":
			s.Peek()
			from = s.Position()
			return s.Raw(&raw)
		case "quoted":
			return s.Quoted(&quoted)
		case "text":
			return s.Text(&text)
		}
		return s.Quoted(&none)
	})
	if err = errors.Join(err, s.End()); err != nil {
		t.Fatal(err)
	}
	if string(raw) != "[1, 2]" || string(s.Part(from, from+len(raw))) != "[1, 2]" || string(quoted) != `"a\"b"` || text != `a"b` || none != nil {
		t.Errorf("raw %s, quoted %s, text %s, none %s", raw, quoted, text, none)
	}
}

func TestErrors(t *testing.T) {
	twice := []byte("0")
	text := "before"
	for _, test := range []struct {
		name, text string
		read       func(*Scanner) error
		want       string
	}{
		{"no object", `[]`, func(s *Scanner) error { return s.Members(nil) }, "byte 0 is '[' where an object should be"},
		{"no array", `{}`, func(s *Scanner) error { return s.Items(nil) }, "byte 0 is '{' where an array should be"},
		{"no string", ` 7`, func(s *Scanner) error { return s.Quoted(new([]byte)) }, "byte 1 is '7' where a string should be"},
		{"nothing", ` `, func(s *Scanner) error { return s.Text(new(string)) }, "the text ends where a string should be"},
		{"escaped", `{"\u0061":1}`, func(s *Scanner) error { return s.Members(nil) }, errEscaped.Error()},
		{"raw twice", `1`, func(s *Scanner) error { return s.Raw(&twice) }, ErrTwice.Error()},
		{"text twice", `"b"`, func(s *Scanner) error { return s.Text(&text) }, ErrTwice.Error()},
		{"too deep", strings.Repeat("[", 100), func(s *Scanner) error { _, err := s.Skip(); return err }, errDeep.Error()},
		{"more", ` {}`, func(s *Scanner) error { return s.End() }, "byte 1 is '{' where the end should be"},
	} {
		if err := test.read(New([]byte(test.text))); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}
