package load

import (
	"reflect"
	"strings"
	"testing"
)

func TestAnswersAreReadAsTheyWereWritten(t *testing.T) {
	want := Answer{
		Endpoint: Endpoint{Pod: "echo-1", Namespace: "default", Node: "zone-a-1", Zone: "zone-a", Service: "echo"},
		Protocol: TCP, Client: "10.128.0.5:40312", ID: "x-1", Last: true,
	}
	line := want.Line()
	if strings.Count(string(line), "\n") != 1 || line[len(line)-1] != '\n' {
		t.Errorf("the answer is not one line: %q", line)
	}
	got, err := ParseAnswer(line)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWhoServesAService(t *testing.T) {
	for _, test := range []struct {
		namespace, services, service string
		want                         bool
	}{
		{"default", "echo", "echo", true},
		{"default", "echo", "default/echo", true},
		{"default", "echo", "other/echo", false},
		{"default", "echo", "ech", false},
		{"default", "echo, echo-headless", "echo-headless", true},
		{"default", "", "echo", false},
	} {
		e := Endpoint{Namespace: test.namespace, Service: test.services}
		if got := e.serves(test.service); got != test.want {
			t.Errorf("%s/%q serves %s: %t", test.namespace, test.services, test.service, got)
		}
	}
}

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
			t.Errorf("%q is taken for an answer of no pod", line)
		}
		if again, err := ParseAnswer(answer.Line()); err == nil && !reflect.DeepEqual(again, answer) {
			t.Errorf("%q is %+v, then %+v", line, answer, again)
		}
	})
}
