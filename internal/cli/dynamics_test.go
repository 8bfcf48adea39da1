package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
)

// dynamics runs the command in a program that has no other.
func dynamics(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	return runCommands(ctx, append([]string{"dynamics"}, args...), func(s command.Streams) []*cobra.Command {
		return []*cobra.Command{newDynamicsCommand(s)}
	})
}

// byHand can be checked by hand: for half an hour, six of twelve endpoints serve everything, twice the
// even share.
var byHand = strings.Fields("--scenario one-zone-traffic --zones 2 --nodes-per-zone 1 --endpoints 12 --algorithm balanced,local --without none")

func TestDynamicsTable(t *testing.T) {
	code, out, err := dynamics(t.Context(), byHand...)
	if code != 0 || err != "" {
		t.Fatalf("exit code %d: %s", code, err)
	}
	want := `one-zone-traffic: 3 events in 1h0m0s; all clients are in one zone, then in another

algorithm  variant  in-zone %  reallocated  per event  slices written  per event  rerouted %  above threshold s  worst overload %  flips
balanced   full         50.00            0       0.00               0       0.00        0.00                  0               0.0      0
local      full        100.00            0       0.00               0       0.00        0.00               1800             100.0      0

in-zone: traffic that stays`
	if !strings.HasPrefix(out, want) {
		t.Errorf("got\n%s\nwant\n%s …", out, want)
	}
}

func TestDynamicsErrors(t *testing.T) {
	for _, test := range []struct {
		args, want string
	}{
		{"--scenario flood", `--scenario "flood" is unknown; allowed are all, or a list of rolling-update,`},
		{"--without fear", `--without "fear" is not allowed; it must be all, none, or a list of padding, laziness, minimal-moves, savings`},
		{"--starting-threshold x", `--starting-threshold "x" is not allowed; it must be a number of endpoints such as 12, or one for each zone such as 3x`},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, out, err := dynamics(t.Context(), strings.Fields(test.args)...)
			if code != command.ExitUsage || out != "" || !strings.Contains(err, test.want) || strings.Count(err, "\n") != 1 {
				t.Errorf("exit code %d; printed %q; said %q, want %q", code, out, err, test.want)
			}
		})
	}
}
