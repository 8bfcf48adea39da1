package load

import (
	"reflect"
	"testing"
)

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"pod":"echo-1","zone":"zone-a"}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`<html>`))
	f.Add([]byte(`{"pod":"a"}{"pod":"b"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		answer, err := ParseAnswer(line)
		if err != nil {
			return
		}
		if answer.Pod == "" {
			t.Errorf("%q is accepted as an answer without a pod", line)
		}
		if again, err := ParseAnswer(answer.Line()); err == nil && !reflect.DeepEqual(again, answer) {
			t.Errorf("%q is %+v, then %+v", line, answer, again)
		}
	})
}
