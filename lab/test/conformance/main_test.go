package main

import (
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab"
)

func TestFlags(t *testing.T) {
	o, err := parse(strings.Fields("-tests suite -suite network -proxy vicinity -focus DNS.*cluster -slow -parallel 3 -lab two"))
	if err != nil {
		t.Fatal(err)
	}
	if o.suite != "network" || o.proxy != "vicinity" || o.lab != "two" || !o.slow || o.parallel != 3 || !o.focus.MatchString("a DNS of the cluster") || !strings.HasSuffix(o.tests, "/suite") {
		t.Errorf("options %+v", o)
	}
	for flags, want := range map[string]string{
		"-tests suite": "proxy=kube-proxy", "-tests suite -proxy both": "proxy=both", "-tests a -proxy vicinity -prefer": "proxy=vicinity prefer=true",
	} {
		o, err := parse(strings.Fields(flags))
		if err != nil || o.mode() != want {
			t.Errorf("%s: the run is %v, %v, want %s", flags, o, err, want)
		}
		if err := lab.CheckChartValues(o.values()); err != nil {
			t.Errorf("%s: values of the chart: %v", flags, err)
		}
	}
	for flags, want := range map[string]string{
		"":                           "-tests is missing",
		"-tests a -suite storage":    `-suite "storage": write one of network, apps, scheduling or all`,
		"-tests a -proxy none":       `-proxy "none": write one of kube-proxy, vicinity, or both with every`,
		"-tests a -focus [":          `-focus "[": error parsing`,
		"-tests a -parallel 0":       "-parallel 0: write a number above 0",
		"-tests a -suite all scheme": `argument "scheme": there are flags only`,
	} {
		if _, err := parse(strings.Fields(flags)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}
