package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab/fabric"
)

// nodeConnections are the connections of a node, as the JSON output has them.
type nodeConnections struct {
	Node        string              `json:"node"`
	Connections []fabric.Connection `json:"connections"`
}

func newLabConnectionsCommand(s command.Streams, f *labFlags) *cobra.Command {
	var to, output string
	cmd := &cobra.Command{
		Use:   "connections [NODE]...",
		Short: "List the connections that the kernel tracks on nodes",
		Long: `Connections lists what the kernel remembers of each connection that went through a
node: who opened it, to which address, which endpoint the rules of the node's proxy
chose, and when the kernel will forget it. It is where to look when a connection was
refused without a reason. Without a name it lists those of all nodes.`,
		Example: `  vicinity lab connections
  vicinity lab connections zone-a-1 --to 10.96.107.247
  vicinity lab connections -o json`,
		RunE: func(_ *cobra.Command, nodes []string) error {
			write, err := connectionsFormat(output)
			if err != nil {
				return err
			}
			wanted, err := wantedAddress(to)
			if err != nil {
				return err
			}
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			if len(nodes) == 0 {
				for _, node := range cluster.Shape().Nodes() {
					nodes = append(nodes, node.Name)
				}
			}
			all := []nodeConnections{}
			for _, node := range nodes {
				connections, err := cluster.Connections(node)
				if err != nil {
					return err
				}
				all = append(all, nodeConnections{Node: node, Connections: connectionsTo(connections, wanted)})
			}
			return write(s.Out, all)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&to, "to", "", "list only connections to this `ADDRESS`, such as a cluster IP")
	flags.StringVarP(&output, "output", "o", "table", "`FORMAT` of the output: table or json")
	return cmd
}

func wantedAddress(to string) (netip.Addr, error) {
	if to == "" {
		return netip.Addr{}, nil
	}
	address, err := netip.ParseAddr(to)
	if err != nil {
		return netip.Addr{}, command.UsageErrorf("--to %q is not allowed; it must be an IP address", to)
	}
	return address, nil
}

func connectionsFormat(output string) (func(io.Writer, []nodeConnections) error, error) {
	switch output {
	case "table":
		return writeConnections, nil
	case "json":
		return writeConnectionsJSON, nil
	}
	return nil, command.UsageErrorf("--output %q is unknown; it must be table or json", output)
}

// connectionsTo are those to an address, or all where it is none.
func connectionsTo(connections []fabric.Connection, address netip.Addr) []fabric.Connection {
	chosen := []fabric.Connection{}
	for _, c := range connections {
		if !address.IsValid() || c.To.Addr() == address {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

func writeConnections(w io.Writer, nodes []nodeConnections) error {
	var rows [][]string
	for _, node := range nodes {
		for _, c := range node.Connections {
			rows = append(rows, []string{
				node.Node, c.Protocol, c.From.String(), c.To.String(), c.Endpoint.String(),
				c.State, fmt.Sprintf("%d s", c.TimeoutSeconds),
			})
		}
	}
	return table(w, []string{"NODE", "PROTOCOL", "FROM", "TO", "ENDPOINT", "STATE", "FORGOTTEN IN"}, rows)
}

func writeConnectionsJSON(w io.Writer, nodes []nodeConnections) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(nodes)
}
