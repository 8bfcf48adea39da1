package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
)

// digFlags are the flags of "vicinity lab dig" as they are given.
type digFlags struct {
	query          dnsquery.Query
	pod, namespace string
	node           string
	server, subnet string
	output         string
}

func newLabDigCommand(s command.Streams, lf *labFlags) *cobra.Command {
	f := digFlags{}
	cmd := &cobra.Command{
		Use:   "dig NAME",
		Short: "Ask a DNS server as a pod or a node does",
		Long: `Dig sends one query from the network of a pod or a node and prints the answer: its code,
flags, records and size. A pod asks the server of its resolv.conf, a node that of the
cluster, unless --server says another. The name is taken as it is: no search list is tried.

The exit code is 1 when there is no answer; that a name does not exist is an answer.`,
		Example: `  vicinity lab dig kubernetes.default.svc.cluster.local --node zone-a-1
  vicinity lab dig db.shop.svc.cluster.local --pod client-0 --type SRV --tcp -o json
  vicinity lab dig db.shop.svc.cluster.local --pod client-0 --edns 4096 --server 10.128.1.2`,
		Args: oneName("host or Service in full"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.query.Name = args[0]
			write, err := f.complete()
			if err != nil {
				return err
			}
			cluster, err := lf.open(s)
			if err != nil {
				return err
			}
			answer, err := f.ask(cmd.Context(), cluster)
			if err != nil {
				return err
			}
			return write(s.Out, answer)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.pod, "pod", "", "`POD` that asks")
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "`NAMESPACE` of the pod")
	flags.StringVar(&f.node, "node", "", "`NODE` that asks, instead of a pod")
	flags.StringVarP(&f.query.Type, "type", "t", "A", "`TYPE` of the records")
	flags.StringVar(&f.server, "server", "", "`ADDRESS` of the server to ask, with or without a port")
	flags.BoolVar(&f.query.TCP, "tcp", false, "ask over TCP instead of UDP")
	flags.Uint16Var(&f.query.UDPSize, "edns", 0, "`SIZE` of answers that EDNS allows (default no EDNS, and 512 bytes)")
	flags.BoolVar(&f.query.DNSSEC, "dnssec", false, "ask for signatures")
	flags.StringVar(&f.subnet, "subnet", "", "`PREFIX` to send as the EDNS client subnet")
	flags.DurationVar(&f.query.Timeout, "timeout", 0, "`TIME` to wait for the answer (default 2s)")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text or json")
	return cmd
}

// complete reads the flags, and returns what writes the answer.
func (f *digFlags) complete() (func(io.Writer, dnsquery.Answer) error, error) {
	if (f.pod == "") == (f.node == "") {
		return nil, command.UsageErrorf("say who asks: either --pod or --node")
	}
	var err error
	if f.server != "" {
		if f.query.Server, err = dnsquery.ParseServer(f.server); err != nil {
			return nil, command.UsageErrorf("--%w", err)
		}
	}
	if f.subnet != "" {
		if f.query.Subnet, err = netip.ParsePrefix(f.subnet); err != nil {
			return nil, command.UsageErrorf("--subnet %q: write an address with a length, such as 10.128.1.2/32", f.subnet)
		}
	}
	if err := (dnsquery.Query{Name: f.query.Name}).Validate(); err != nil {
		return nil, command.UsageErrorf("%w", err)
	}
	if err := f.query.Validate(); err != nil {
		return nil, command.UsageErrorf("--%w", err)
	}
	switch f.output {
	case "text":
		return func(w io.Writer, answer dnsquery.Answer) error {
			_, err := io.WriteString(w, answer.String())
			return err
		}, nil
	case "json":
		return func(w io.Writer, answer dnsquery.Answer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(answer)
		}, nil
	}
	return nil, command.UsageErrorf("--output %q is unknown; it must be text or json", f.output)
}

func (f *digFlags) ask(ctx context.Context, cluster *lab.Cluster) (dnsquery.Answer, error) {
	if f.node != "" {
		return cluster.QueryDNSFromNode(ctx, f.node, f.query)
	}
	client, err := cluster.Client()
	if err != nil {
		return dnsquery.Answer{}, err
	}
	pod, err := client.CoreV1().Pods(f.namespace).Get(ctx, f.pod, metav1.GetOptions{})
	if err != nil {
		return dnsquery.Answer{}, fmt.Errorf("looking for the pod that asks: %w", err)
	}
	return cluster.QueryDNSFromPod(ctx, pod, f.query)
}
