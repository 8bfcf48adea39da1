package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

func newLabTrafficCommand(s command.Streams, f *labFlags) *cobra.Command {
	var output string
	var during time.Duration
	cmd := &cobra.Command{
		Use:   "traffic",
		Short: "Show how many bytes went from zone to zone",
		Long: `Traffic shows what nodes of each zone sent to nodes of each zone, as the lab's fabric
counts it: where a cloud would bill it. It is all since the lab came up, or with --for
what is sent in the time from now. What stays on a node is not in it.`,
		Example: `  vicinity lab traffic
  vicinity lab traffic --for 10s -o json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, err := trafficFormat(output)
			if err != nil {
				return err
			}
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			var before lab.Traffic
			if during > 0 {
				if before, err = cluster.Traffic(); err != nil {
					return err
				}
				select {
				case <-time.After(during):
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				}
			}
			now, err := cluster.Traffic()
			if err != nil {
				return err
			}
			return write(s.Out, cluster.Shape().Zones, now.Since(before))
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&during, "for", 0, "count for this `TIME` only, from now")
	flags.StringVarP(&output, "output", "o", "table", "`FORMAT` of the output: table or json")
	return cmd
}

func trafficFormat(output string) (func(io.Writer, []shape.Zone, lab.Traffic) error, error) {
	switch output {
	case "table":
		return writeTraffic, nil
	case "json":
		return writeTrafficJSON, nil
	}
	return nil, command.UsageErrorf("--output %q is unknown; it must be table or json", output)
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
			row = append(row, command.ByteCount(float64(traffic.Between(from.Name, to.Name).Bytes)))
		}
		rows = append(rows, row)
	}
	if err := table(w, headings, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s between zones, %s in all\n",
		command.ByteCount(float64(traffic.CrossZone().Bytes)), command.ByteCount(float64(traffic.All().Bytes)))
	return err
}

// zoneTraffic is an entry of the JSON output.
type zoneTraffic struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
}

func writeTrafficJSON(w io.Writer, zones []shape.Zone, traffic lab.Traffic) error {
	entries := []zoneTraffic{}
	for _, from := range zones {
		for _, to := range zones {
			sent := traffic.Between(from.Name, to.Name)
			entries = append(entries, zoneTraffic{From: from.Name, To: to.Name, Bytes: sent.Bytes, Packets: sent.Packets})
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(entries)
}
