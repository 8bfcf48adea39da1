// Package bools has the comparison that package cmp lacks.
package bools

// Compare compares two booleans: false is less than true.
func Compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
