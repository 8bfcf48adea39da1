package main

import (
	"slices"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-sizes", "10, 20", "-rounds", "1", "-proxy-flags", "--a --b=c"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.sizes, []int{10, 20}) || o.rounds != 1 || len(o.flags) != 2 || !o.subsets {
		t.Errorf("options %+v", o)
	}
	for flags, want := range map[string]string{
		"-sizes many":     `-sizes: "many" is not allowed`,
		"-sizes 20,10":    `-sizes: "10" is not allowed; write numbers from 1 to 50000 in ascending order`,
		"-sizes 0":        `-sizes: "0"`,
		"-sizes 50001":    `-sizes: "50001"`,
		"-rounds 0":       "-rounds: 0 is not allowed; it must be 1 or more",
		"-changes 1":      "-changes: 1 is not allowed; it must be 2 or more",
		"-endpoints -1":   "-endpoints: -1 is not allowed",
		"-connects 0":     "-connects: 0",
		"-races -1":       "-races: -1 is not allowed; it must be 0 or more",
		"-peer-changes 0": "-peer-changes: 0",
		"-cost-changes 0": "-cost-changes: 0",
		"more":            `argument "more"`,
	} {
		if _, err := parse(strings.Fields(flags)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}
