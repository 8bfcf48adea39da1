// Command licences says under which licences the modules are that the shipped programs have parts of: vicinity,
// vicinity-controller, vicinity-proxy and vicinity-dns, for Linux on amd64 and arm64. It fails for a licence that is not on
// the list of those that are allowed, for a text that it does not know, and for a module without a licence.
//
// The list in docs/reference/licences.md is written by its test, as other generated files are: make generate. With -notices it
// writes the texts, which go where the programs go.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	notices := flag.String("notices", "", "`file` to write the texts of all licences and notices to")
	flag.Parse()
	if err := run(*notices); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(notices string) error {
	all, err := dependencies(".")
	if err != nil {
		return err
	}
	var faults []error
	for _, d := range all {
		faults = append(faults, d.check())
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if notices == "" {
		fmt.Printf("%d modules, all under %s\n", len(all), strings.Join(allowed, ", "))
		return nil
	}
	return os.WriteFile(notices, []byte(texts(all)), 0o644)
}
