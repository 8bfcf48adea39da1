package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/lab"
)

func newLabStatusCommand(s command.Streams, f *labFlags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the components and nodes of a lab",
		Long: `Status shows the components, DNS server, nodes and memory of a lab. It also works while the
API server does not; then the pods are unknown.`,
		Example: `  vicinity lab status
  vicinity lab status -o json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, err := statusFormat(output)
			if err != nil {
				return err
			}
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			status, err := cluster.Status(cmd.Context())
			if err != nil {
				return err
			}
			return write(s.Out, status)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`FORMAT`: table or json")
	return cmd
}

func statusFormat(output string) (func(io.Writer, lab.Status) error, error) {
	switch output {
	case "table":
		return writeStatus, nil
	case "json":
		return func(w io.Writer, status lab.Status) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(status)
		}, nil
	}
	return nil, command.UsageErrorf("--output %q is unknown; it must be table or json", output)
}

func writeStatus(w io.Writer, status lab.Status) error {
	fmt.Fprintf(w, "lab %s, since %s, %s, %.0f MiB of memory\nkubeconfig %s\n%s\n",
		status.Name, status.Created.Local().Format(time.DateTime), podsInAll(status.Pods),
		mebibytes(status.Memory), status.Kubeconfig, dnsLine(status.DNS))
	var rows [][]string
	for _, c := range status.Components {
		row := []string{c.Name, "", "", c.State}
		if c.PID != 0 {
			row[1], row[2] = strconv.Itoa(c.PID), fmt.Sprintf("%.0f MiB", mebibytes(c.Memory))
		}
		rows = append(rows, row)
	}
	if err := table(w, []string{"COMPONENT", "PID", "MEMORY", "STATE"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = nil
	for _, n := range status.Nodes {
		rows = append(rows, []string{n.Name, n.Zone, n.Region, n.Address, podsOf(n.Pods), n.State})
	}
	if err := table(w, []string{"NODE", "ZONE", "REGION", "ADDRESS", "PODS", "STATE"}, rows); err != nil {
		return err
	}
	for _, zone := range slices.Sorted(maps.Keys(status.Impaired)) {
		i := status.Impaired[zone]
		fmt.Fprintf(w, "the uplink of %s loses %d %% of packets, and delays the others by %s\n", zone, i.Loss, i.Delay.Duration)
	}
	if status.FakeNodes > 0 {
		fmt.Fprintf(w, "and %s without network\n", plaintext.Count(int64(status.FakeNodes), "node", "nodes"))
	}
	return nil
}

func dnsLine(status *lab.DNSStatus) string {
	if status == nil {
		return ""
	}
	var addresses []string
	for _, addr := range status.Addresses {
		addresses = append(addresses, addr.String())
	}
	return fmt.Sprintf("DNS %s at %s, %s\n", status.Kind, strings.Join(addresses, " and "), status.State)
}

func podsInAll(pods *int) string {
	if pods == nil {
		return "pods unknown"
	}
	return plaintext.Count(int64(*pods), "pod", "pods")
}

func podsOf(pods *int) string {
	if pods == nil {
		return "unknown"
	}
	return strconv.Itoa(*pods)
}

func mebibytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
