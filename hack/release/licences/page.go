package licences

import (
	"fmt"
	"strings"
)

// page is docs/reference/licences.md.
func page(all []*dependency) string {
	var b strings.Builder
	b.WriteString(`# Licences

What the programs that Vicinity ships have parts of, for Linux on amd64 and arm64, and under which licences, by the texts that come with each
module. Vicinity itself is under the [Apache License 2.0](../../LICENSE). ` + "`make generate`" + ` writes this list, a test fails where it is not current, and for a
licence that is not one of these: ` + strings.Join(allowed, ", ") + `. ` + "`make notices`" + ` writes all texts to ` + "`bin/THIRD_PARTY_NOTICES`" + `.

| module | version | licences | part of |
| --- | --- | --- | --- |
`)
	for _, d := range all {
		module, programs := d.Module, make([]string, len(d.Programs))
		if d.Version != "" {
			module = "`" + module + "`"
		}
		for i, program := range d.Programs {
			programs[i] = "`" + program + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", module, d.Version, strings.Join(d.licences(), ", "), strings.Join(programs, ", "))
	}
	return b.String()
}

// texts are the licences and notices of all modules, each once for each module.
func texts(all []*dependency) string {
	var b strings.Builder
	b.WriteString("The programs of Vicinity have parts of the following modules, each under the texts below its name.\n")
	for _, d := range all {
		for _, f := range d.Files {
			title := strings.TrimSpace(d.Module + " " + d.Version)
			fmt.Fprintf(&b, "\n%s\n%s: %s\n%[1]s\n\n%[4]s\n", strings.Repeat("=", 80), title, f.Name, strings.TrimSpace(f.Text))
		}
	}
	return b.String()
}
