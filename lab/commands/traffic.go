package commands

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

func newLabTrafficCommand(s command.Streams, f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "traffic",
		Short: "Show how many bytes went from zone to zone",
		Long: `Traffic shows the bytes that nodes of each zone sent to nodes of each zone since the lab came
up, without traffic within a node.`,
		Args: command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			traffic, err := cluster.Traffic()
			if err != nil {
				return err
			}
			return writeTraffic(s.Out, cluster.Shape().Zones, traffic)
		},
	}
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
