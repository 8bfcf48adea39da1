package cli

import (
	"cmp"
	"slices"
	"strings"
)

// mostSuggested is the number of names that a message suggests.
const mostSuggested = 3

// similar are the names that may be meant by one that does not exist, the nearest
// first: those of which it is a part, or that differ in few letters.
func similar(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, other := range names {
		d := distance(name, other)
		within := d <= max(1, len(name)/3)
		if within || len(name) > 2 && (strings.Contains(other, name) || strings.Contains(name, other)) {
			near = append(near, candidate{other, d})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var best []string
	for _, c := range near[:min(mostSuggested, len(near))] {
		best = append(best, c.name)
	}
	return best
}

// distance is the number of letters to insert, delete or replace to make b of a,
// where two that are swapped count once.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(replace, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
