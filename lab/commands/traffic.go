package commands

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

func newLabTrafficCommand(s command.Streams, f *labFlags) *cobra.Command {
	var during time.Duration
	cmd := &cobra.Command{
		Use:   "traffic",
		Short: "Show how many bytes went from zone to zone",
		Long: `Traffic shows what nodes of each zone sent to nodes of each zone, as the lab's fabric
counts it: where a cloud would bill it. It is all since the lab came up, or with --for
what is sent in the time from now. What stays on a node is not in it.`,
		Example: `  vicinity lab traffic
  vicinity lab traffic --for 10s`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			var before lab.Traffic
			if during > 0 {
				if before, err = cluster.Traffic(); err != nil {
					return err
				}
				if err := command.Pause(cmd.Context(), during); err != nil {
					return err
				}
			}
			now, err := cluster.Traffic()
			if err != nil {
				return err
			}
			return writeTraffic(s.Out, cluster.Shape().Zones, now.Since(before))
		},
	}
	cmd.Flags().DurationVar(&during, "for", 0, "count for this `TIME` only, from now")
	return cmd
}

func writeTraffic(w io.Writer, zones []shape.Zone, traffic lab.Traffic) error {
	headings := []string{"FROM"}
	for _, to := range zones {
		headings = append(headings, "TO "+to.Name)
	}
	var rows [][]string
	for _, from := range zones {
		row := []string{from.Name}
		for _, to := range zones {
			row = append(row, command.ByteCount(float64(traffic.Between(from.Name, to.Name))))
		}
		rows = append(rows, row)
	}
	if err := table(w, headings, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s between zones, %s in all\n",
		command.ByteCount(float64(traffic.CrossZone())), command.ByteCount(float64(traffic.All())))
	return err
}
