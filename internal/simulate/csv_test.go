package simulate

import (
	"io"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

// readCSV reads a CSV to its end, as a run does.
func readCSV(r io.Reader) (cases []Case, err error) {
	c, err := NewCSV(r, "test.csv")
	if err != nil {
		return nil, err
	}
	s := c.open()
	var b batch
	for {
		more, err := s(&b)
		if err != nil || !more {
			return cases, err
		}
		for _, one := range b.cases {
			cases = append(cases, one.Clone())
		}
	}
}

func TestCSVIsRead(t *testing.T) {
	zone := func(name string, nodes float64, endpoints int) allocate.Zone {
		return allocate.Zone{Name: name, Capacity: nodes, Endpoints: endpoints}
	}
	for _, test := range []struct {
		name, csv string
		want      []Case
	}{
		{
			"plain", "name,a,b\nfirst,1 2,3 4\nsecond,5 6,7 8\n",
			[]Case{{"first", []allocate.Zone{zone("a", 1, 2), zone("b", 3, 4)}}, {"second", []allocate.Zone{zone("a", 5, 6), zone("b", 7, 8)}}},
		},
		{
			"as spreadsheets write it", "\ufeffname,a,b\r\n\"one, two\",1 2,3 4\r\n\r\n\"a \"\"b\"\"\",5 6,7 8",
			[]Case{{"one, two", []allocate.Zone{zone("a", 1, 2), zone("b", 3, 4)}}, {`a "b"`, []allocate.Zone{zone("a", 5, 6), zone("b", 7, 8)}}},
		},
		{
			"an empty cell is no zone", "name,a,b,c\nx,1 2,,3 4\ny,,  ,1 1\n",
			[]Case{{"x", []allocate.Zone{zone("a", 1, 2), zone("c", 3, 4)}}, {"y", []allocate.Zone{zone("c", 1, 1)}}},
		},
		{
			"blanks around and between", " name , a,b \n x , 1   2 ,3 4\n",
			[]Case{{"x", []allocate.Zone{zone("a", 1, 2), zone("b", 3, 4)}}},
		},
		{
			"zones without nodes or endpoints", "name,a,b\nx,0 2,3 0\n",
			[]Case{{"x", []allocate.Zone{zone("a", 0, 2), zone("b", 3, 0)}}},
		},
		{"only a header", "name,a\n", nil},
	} {
		cases, err := readCSV(strings.NewReader(test.csv))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !slices.EqualFunc(cases, test.want, func(a, b Case) bool { return a.Name == b.Name && slices.Equal(a.Zones, b.Zones) }) {
			t.Errorf("%s: read %+v, want %+v", test.name, cases, test.want)
		}
	}
}

func TestMalformedCSVIsExplained(t *testing.T) {
	for _, test := range []struct{ name, csv, error string }{
		{"empty", "", `it is empty; it must begin with a header such as "name,zone-a,zone-b"`},
		{"no header", "x,1 2\n", `line 1: the first column of the header is "x"; it must be "name"`},
		{"no zone", "name\n", `line 1: the header has no zone; it must be such as "name,zone-a,zone-b"`},
		{"the same zone twice", "\nname,a,b,a\n", `line 2: the header has the zone "a" twice; each may have one column`},
		{"many cells", "name,a\nx,1 2,3 4\n", "line 2: 3 cells; the header has 2"},
		{"no name", "name,a\n ,1 2\n", `line 2, column "name": cell " " is empty; it must name the case`},
		{"one number", "name,a,b\nx,1 2,3\n", `line 2, column "b": cell "3" must be two numbers, nodes and endpoints, such as "3 12", or empty`},
		{"a word", "name,a\nx,1 2\ny,one 2\n", `line 3, column "a": cell "one 2" has "one" nodes; it must be a whole number`},
		{"a fraction", "name,a\nx,1 2.5\n", `line 2, column "a": cell "1 2.5" has "2.5" endpoints; it must be a whole number`},
		{"negative", "name,a\nx,1 -2\n", `line 2, column "a": cell "1 -2" has -2 endpoints; there cannot be fewer than 0`},
		{"too many endpoints", "name,a\nx,1 9999999999\n", `line 2: zone "a": 9999999999 endpoints; at most 16777216 are supported`},
		{"no endpoint", "name,a,b\nx,1 0,1 0\n", "line 2: no zone has an endpoint; at least one must, or there is nothing to allocate"},
		{"no node", "name,a,b\nx,0 1,0 1\n", "line 2: no zone has a node; at least one must, or there is no traffic"},
		{"an open quote", "name,a\nx,\"1 2\n", `line 2: extraneous or missing " in quoted-field`},
	} {
		_, err := readCSV(strings.NewReader(test.csv))
		if want := "reading test.csv: " + test.error; message(err) != want {
			t.Errorf("%s: error\n%s, want\n%s", test.name, message(err), want)
		}
	}
}

// The corpus is in testdata/fuzz/FuzzReadCSV.
func FuzzReadCSV(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, _ := readCSV(strings.NewReader(string(data)))
		for _, one := range cases {
			region := allocate.Region{Zones: one.Zones}
			if one.Name == "" || region.Endpoints() == 0 {
				t.Fatalf("nothing to score in %+v", one)
			}
			if _, _, err := allocate.Allocate(region, allocate.Intent{}, allocate.Previous{}); err != nil {
				t.Fatalf("%+v cannot be allocated: %v", one, err)
			}
		}
	})
}
