package licences

import (
	"fmt"
	"slices"

	"github.com/google/licensecheck"
)

// allowed are the licences that shipped programs may have parts under, by their SPDX names. All of them let programs be passed
// on under the Apache License 2.0, with their texts beside them. MPL-2.0 asks besides that the source of its own files can be had, which a
// pinned module of the Go proxy is, unchanged.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// leastKnown is how many percent of a text must be known licences. The rest are titles and names of files. pkg.go.dev
// has the same limit.
const leastKnown = 75

// classify returns the SPDX names of the licences in a text.
func classify(text []byte) (names []string, err error) {
	found := licensecheck.Scan(text)
	if found.Percent < leastKnown {
		return nil, fmt.Errorf("only %.0f %% of it is a known licence, and at least %d %% must be", found.Percent, leastKnown)
	}
	for _, match := range found.Match {
		if !slices.Contains(names, match.ID) {
			names = append(names, match.ID)
		}
	}
	return names, nil
}
