package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// loadFlags are the flags of "vicinity lab load" as they are given.
type loadFlags struct {
	lab.LoadOptions
	via      string
	protocol string
	output   string
	live     bool
}

func newLabLoadCommand(s command.Streams, lf *labFlags) *cobra.Command {
	f := loadFlags{}
	cmd := &cobra.Command{
		Use:   "load SERVICE",
		Short: "Send requests from pods to a Service and measure who answers",
		Long: `Load opens real connections from pods to a Service, at a rate that does not wait for
answers, and measures who answered: the share that stayed in its zone, what each endpoint
got, latency, and failures. A failure is every request that was refused, reset, timed out,
cut short, or answered by another Service.

It sends from the pods of the image lab/client in the Service's namespace, or from those
that --selector finds; their own programs have no part in it. The Service's endpoints must
be pods of the image lab/echo.

The exit code is 1 when a request failed.`,
		Example: `  vicinity lab load echo -n demo
  vicinity lab load echo -n demo --from-zones zone-a --rate 1000 --duration 30s --live
  vicinity lab load echo -n demo --protocol udp --ipv6 -o json
  vicinity lab load echo -n demo --via node-port --keep-alive`,
		Args: oneName("Service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Service = args[0]
			cluster, err := lf.open(s)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), s, cluster)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.Namespace, "namespace", "n", "default", "`NAMESPACE` of the Service")
	flags.StringVar(&f.Port, "port", "", "`NAME` or number of the Service's port (default the one named as the protocol, or else the first)")
	flags.StringVar(&f.protocol, "protocol", string(load.HTTP), "what requests are: http, tcp or udp")
	flags.StringVar(&f.via, "via", string(lab.ViaClusterIP), "how the Service is reached: cluster-ip, node-port or endpoints")
	flags.BoolVar(&f.IPv6, "ipv6", false, "use the Service's IPv6 address")
	flags.StringSliceVar(&f.Zones, "from-zones", nil, "send from pods in this `LIST` of zones only")
	flags.StringSliceVar(&f.Nodes, "from-nodes", nil, "send from pods on this `LIST` of nodes only")
	flags.StringVar(&f.From, "from-namespace", "", "`NAMESPACE` of the pods to send from (default the Service's)")
	flags.StringVarP(&f.Selector, "selector", "l", "", "label `SELECTOR` of the pods to send from")
	flags.Float64Var(&f.Plan.Rate, "rate", 100, "`NUMBER` of requests a second, from all pods together")
	flags.DurationVar(&f.Plan.Duration, "duration", 10*time.Second, "`TIME` to send")
	flags.BoolVar(&f.Plan.KeepAlive, "keep-alive", false, "use connections again")
	flags.IntVar(&f.Plan.Concurrency, "concurrency", 0, "`NUMBER` of requests that may be under way from one pod (default 64)")
	flags.DurationVar(&f.Plan.Timeout, "timeout", 0, "`TIME` that a request may take (default 5s)")
	flags.DurationVar(&f.Plan.Interval, "interval", 0, "`TIME` from one report of progress to the next (default 1s)")
	flags.BoolVar(&f.live, "live", false, "show what happens while it happens")
	flags.StringVarP(&f.output, "output", "o", "table", "`FORMAT` of the output: table or json")
	return cmd
}

func (f *loadFlags) run(ctx context.Context, s command.Streams, cluster *lab.Cluster) error {
	write, err := f.format()
	if err != nil {
		return err
	}
	f.Plan.Protocol, f.Via = load.Protocol(f.protocol), lab.Via(f.via)
	job, err := cluster.PlanLoad(ctx, f.LoadOptions)
	if err != nil {
		return err
	}
	if err := job.Plan.Validate(); err != nil {
		return command.UsageErrorf("--%w", err)
	}
	watch := load.Watch{}
	if f.live {
		watch.Progress = showLoad(s.Err, job)
	}
	result, err := job.Run(ctx, watch)
	// What was measured until it failed is worth showing.
	err = errors.Join(err, write(s.Out, load.Summarize(job.Plan, len(job.Sources), result)))
	if failed := result.Failed(); err == nil && failed > 0 {
		err = fmt.Errorf("%s of %d failed", explain.Count(failed, "request", "requests"), result.Due)
	}
	return err
}

func (f *loadFlags) format() (func(io.Writer, load.Summary) error, error) {
	switch f.output {
	case "table":
		return func(w io.Writer, summary load.Summary) error {
			_, err := io.WriteString(w, load.Table(summary))
			return err
		}, nil
	case "json":
		return func(w io.Writer, summary load.Summary) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(summary)
		}, nil
	}
	return nil, command.UsageErrorf("--output %q is unknown; it must be table or json", f.output)
}

// showLoad shows the progress of a job: on a terminal in place, elsewhere a line at a
// time.
func showLoad(w io.Writer, job lab.LoadJob) func(load.Progress) {
	view := screen{out: w, live: command.IsTerminal(w)}
	return func(p load.Progress) {
		v := load.View{Plan: job.Plan, Sources: len(job.Sources), Progress: p}
		if !view.live {
			view.say("%s\n", load.Line(v))
			return
		}
		view.replace(strings.Split(strings.TrimSuffix(load.Live(v, terminalWidth(w)), "\n"), "\n"))
	}
}

// terminalWidth is how many characters fit on a line.
func terminalWidth(w io.Writer) int {
	const usual = 80
	file, ok := w.(*os.File)
	if !ok {
		return usual
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 {
		return usual
	}
	return width
}
