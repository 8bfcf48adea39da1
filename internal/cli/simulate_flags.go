package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/simulate"
)

// variants combines the algorithms with the thresholds to try. An algorithm without given thresholds
// has its own.
func (f *simulateFlags) variants(algorithms []allocate.Algorithm) ([]simulate.Variant, error) {
	starts, err := parseEach(f.startingThresholds, parseStart)
	if err != nil {
		return nil, command.UsageErrorf("--starting-threshold %w", err)
	}
	overloads, err := parseEach(f.overloadThresholds, parsePercentage)
	if err != nil {
		return nil, command.UsageErrorf("--overload-threshold %w", err)
	}
	var variants []simulate.Variant
	for _, a := range algorithms {
		bound := simulate.StudyBound(a)
		if a == allocate.Balanced {
			variants = append(variants, simulate.Variant{Name: string(a), Bound: bound})
			continue
		}
		for _, start := range orDefault(starts, bound.Start) {
			for _, overload := range orDefault(overloads, bound.OverloadThreshold) {
				name := string(a)
				if len(starts) > 1 {
					name += " " + start.String()
				}
				if len(overloads) > 1 {
					name += " " + percentage(overload)
				}
				bound.Start, bound.OverloadThreshold = start, overload
				variants = append(variants, simulate.Variant{Name: name, Bound: bound})
			}
		}
	}
	return variants, nil
}

func orDefault[T any](values []T, value T) []T {
	if len(values) == 0 {
		return []T{value}
	}
	return values
}

// parseEach parses a list without duplicates.
func parseEach[T comparable](list []string, parse func(string) (T, error)) ([]T, error) {
	var values []T
	for _, s := range list {
		value, err := parse(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("%q is not allowed; %w", s, err)
		}
		if slices.Contains(values, value) {
			return nil, fmt.Errorf("%q is given twice", s)
		}
		values = append(values, value)
	}
	return values, nil
}

func parseStart(s string) (allocate.Start, error) {
	if number, perZone := strings.CutSuffix(s, "x"); perZone {
		n, err := strconv.ParseFloat(number, 64)
		if err == nil && n >= 0 && n <= math.MaxInt32 {
			return allocate.Start{PerZone: n}, nil
		}
	} else if n, err := strconv.ParseInt(s, 10, 32); err == nil && n >= 0 {
		return allocate.Start{Endpoints: int(n)}, nil
	}
	return allocate.Start{}, errors.New("it must be a number of endpoints such as 12, or one for each zone such as 3x")
}

func parsePercentage(s string) (float64, error) {
	if number, found := strings.CutSuffix(s, "%"); found {
		n, err := strconv.ParseFloat(number, 64)
		if err == nil && n > 0 && !math.IsInf(n, 1) {
			return n / 100, nil
		}
	}
	return 0, errors.New("it must be a percentage above 0 such as 50%")
}

func percentage(fraction float64) string {
	return strconv.FormatFloat(100*fraction, 'g', 6, 64) + "%"
}

// gridFlags apply only to the data set "grid".
var gridFlags = [...]string{"zones", "nodes", "endpoints"}

// readDataset returns the data set of the flags.
func (f *simulateFlags) readDataset(given func(string) bool) (simulate.Dataset, error) {
	if f.dataset != "grid" {
		for _, flag := range gridFlags {
			if given(flag) {
				return nil, command.UsageErrorf("--%s is only for --dataset grid", flag)
			}
		}
	}
	switch f.dataset {
	case "published":
		return simulate.Published(), nil
	case "small":
		return simulate.Small(), nil
	case "medium":
		return simulate.Medium(), nil
	case "representative":
		return simulate.Representative(), nil
	case "grid":
		return f.grid()
	}
	return nil, command.UsageErrorf("--dataset %q is unknown; allowed are published, small, medium, representative and grid", f.dataset)
}

func (f *simulateFlags) grid() (simulate.Dataset, error) {
	g := simulate.Grid{Zones: f.zones}
	var err error
	if g.Nodes, err = simulate.ParseRange(f.nodes); err != nil {
		return nil, command.UsageErrorf("--nodes: %w", err)
	}
	if g.Endpoints, err = simulate.ParseRange(f.endpoints); err != nil {
		return nil, command.UsageErrorf("--endpoints: %w", err)
	}
	d, err := simulate.NewGrid(g)
	if err != nil {
		return nil, command.UsageErrorf("--dataset grid: %w", err)
	}
	return d, nil
}
