// Package licences finds the licences and notices of the modules that the shipped programs are linked from, for Linux on
// amd64 and arm64. It refuses a licence that is not allowed, a text that is not known, and a module without a licence.
package licences

import "errors"

// Notices returns the texts that go where the programs of a repository go.
func Notices(root string) (string, error) {
	all, err := dependencies(root)
	if err != nil {
		return "", err
	}
	var faults []error
	for _, d := range all {
		faults = append(faults, d.check())
	}
	if err := errors.Join(faults...); err != nil {
		return "", err
	}
	return texts(all), nil
}
