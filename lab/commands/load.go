package commands

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

func newLabLoadCommand(s command.Streams, f *labFlags) *cobra.Command {
	o := lab.LoadOptions{}
	cmd := &cobra.Command{
		Use:   "load SERVICE",
		Short: "Send requests from pods to a Service and measure which endpoints answer",
		Long: `Load opens connections from pods to a Service at a fixed rate, and measures which endpoints
answer, the share that stays in its zone, latency and failures. With a failure the exit code is
1.

It sends from pods with the image lab/client in the Service's namespace, or from pods that
match --selector. The endpoints must be pods with the image lab/echo.`,
		Example: `  vicinity lab load echo -n demo
  vicinity lab load echo -n demo --from-zones zone-a --rate 1000 --duration 30s
  vicinity lab load echo -n demo --via node-port`,
		Args: oneName("Service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Service = args[0]
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			return runLoad(cmd.Context(), s, cluster, o)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&o.Namespace, "namespace", "n", "default", "`NAMESPACE` of the Service")
	flags.StringVar(&o.Port, "port", "", "`NAME` or number of the Service's port (default the one named as the protocol, or the first)")
	flags.StringVar((*string)(&o.Plan.Protocol), "protocol", string(load.HTTP), "http, tcp or udp")
	flags.StringVar((*string)(&o.Via), "via", string(lab.ViaClusterIP), "address to send to: cluster-ip, node-port or endpoints")
	flags.BoolVar(&o.IPv6, "ipv6", false, "use the Service's IPv6 address")
	flags.StringSliceVar(&o.Zones, "from-zones", nil, "send only from pods in this `LIST` of zones")
	flags.StringSliceVar(&o.Nodes, "from-nodes", nil, "send only from pods on this `LIST` of nodes")
	flags.StringVar(&o.From, "from-namespace", "", "`NAMESPACE` of the pods to send from (default the Service's)")
	flags.StringVarP(&o.Selector, "selector", "l", "", "label `SELECTOR` of the pods to send from")
	flags.Float64Var(&o.Plan.Rate, "rate", 100, "`NUMBER` of requests a second, from all pods together")
	flags.DurationVar(&o.Plan.Duration, "duration", 10*time.Second, "`TIME` to send")
	flags.IntVar(&o.Plan.Concurrency, "concurrency", 0, "`NUMBER` of concurrent requests from one pod (default 64)")
	flags.DurationVar(&o.Plan.Timeout, "timeout", 0, "longest `TIME` of a request (default 5s)")
	return cmd
}

func runLoad(ctx context.Context, s command.Streams, cluster *lab.Cluster, o lab.LoadOptions) error {
	job, err := cluster.PlanLoad(ctx, o)
	if err != nil {
		return err
	}
	if err := job.Plan.Validate(); err != nil {
		return command.UsageErrorf("--%w", err)
	}
	result, err := job.Run(ctx, load.Watch{})
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.Out, load.Table(job.Plan, len(job.Sources), result))
	if failed := result.Failed(); err == nil && failed > 0 {
		err = fmt.Errorf("%s of %d failed", plaintext.Count(failed, "request", "requests"), result.Due)
	}
	return err
}
