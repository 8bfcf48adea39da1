package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/command"
)

// thresholdFlags set thresholds of algorithms. Others keep their defaults.
type thresholdFlags struct {
	overload, start, padding string
}

func (f *thresholdFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.overload, "overload-threshold", "", fmt.Sprintf(
		"`LOAD` above the even share that no endpoint may reach (default %s; auto always has %s)",
		percentage(allocate.DefaultOverloadThreshold), percentage(allocate.DefaultAutoOverloadThreshold)))
	flags.StringVar(&f.start, "starting-threshold", "", fmt.Sprintf(
		"`NUMBER` of endpoints below which plans are balanced; 3x is 3 per zone (default %s, none for optimal; not for auto)",
		allocate.Start{PerZone: allocate.DefaultStartPerZone}))
	flags.StringVar(&f.padding, "padding", "", fmt.Sprintf(
		"`NUMBER` of endpoints around the starting threshold within which the state is kept (default %d; not for auto)",
		allocate.DefaultPadding))
	command.Share(flags, "Threshold flags", "overload-threshold", "starting-threshold", "padding")
}

func (f *thresholdFlags) read() (t allocate.Thresholds, err error) {
	if f.overload != "" {
		overload, err := parsePercentage(f.overload)
		if err != nil {
			return t, command.UsageErrorf("--overload-threshold %q is not allowed; %w", f.overload, err)
		}
		t.Overload = &overload
	}
	if f.start != "" {
		start, err := parseStart(f.start)
		if err != nil {
			return t, command.UsageErrorf("--starting-threshold %q is not allowed; %w", f.start, err)
		}
		t.Start = &start
	}
	if f.padding != "" {
		padding, err := strconv.Atoi(f.padding)
		if err != nil || padding < 0 {
			return t, command.UsageErrorf("--padding %q is not allowed; it must be 0 or more endpoints", f.padding)
		}
		t.Padding = &padding
	}
	bound := t.Apply(allocate.DefaultBound(allocate.Optimal))
	if err := bound.Validate(); err != nil {
		return t, command.UsageErrorf("%w", err)
	}
	return t, nil
}
