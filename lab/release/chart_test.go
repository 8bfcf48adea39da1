package release

import (
	"reflect"
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	values := Values{"podAnnotations": map[string]any{"a": "b"}, "replicas": 3}
	if err := values.Set("podAnnotations.c=d,replicas=1", "routing.takeOverAuto=true"); err != nil {
		t.Fatal(err)
	}
	want := Values{
		"podAnnotations": map[string]any{"a": "b", "c": "d"}, "replicas": int64(1),
		"routing": map[string]any{"takeOverAuto": true},
	}
	if !reflect.DeepEqual(values, want) {
		t.Errorf("the values are %v, want %v", values, want)
	}
	if err := values.Validate(); err != nil {
		t.Error(err)
	}
}

func TestBadValuesAreNamed(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want string
	}{
		{[]string{"replicas"}, `"replicas": key "replicas" has no value; write key=value`},
		{[]string{"replicas=1", "replicas=many"}, `replicas: got string, want integer`},
		{[]string{"routing.groups.size=0"}, `routing.groups.size: minimum: got 0, want 1`},
		{[]string{"mistake=1"}, `the values: additional properties 'mistake' not allowed`},
		{
			[]string{"routing.mistake=1,log.level=loud"},
			`routing: additional properties 'mistake' not allowed; log.level: value must be one of 'debug', 'info', 'error'`,
		},
	} {
		values := Values{}
		err := values.Set(test.set...)
		if err == nil {
			err = values.Validate()
		}
		if err == nil || !sameParts(err.Error(), test.want) {
			t.Errorf("%q: the error is %v, want %s", test.set, err, test.want)
		}
	}
}

// sameParts compares what a schema says, whose order is chance.
func sameParts(got, want string) bool {
	left := strings.Split(got, "; ")
	for part := range strings.SplitSeq(want, "; ") {
		if !strings.Contains(got, part) {
			return false
		}
		left = left[1:]
	}
	return len(left) == 0
}

// What cannot be read as the words of a schema is handed on.
func TestComplaintOfAnotherKind(t *testing.T) {
	if got := complaint("no schema at all"); got != "no schema at all" {
		t.Errorf("got %q", got)
	}
}
