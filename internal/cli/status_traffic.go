package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
)

// defaultMeasure is long enough that proxies count long connections several times.
const defaultMeasure = time.Minute

type trafficFlags struct {
	flags    *pflag.FlagSet
	isWanted bool
	over     time.Duration
	perGiB   float64
}

func (f *trafficFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.BoolVar(&f.isWanted, "traffic", false, "list the counts of vicinity-proxy by Service")
	flags.DurationVar(&f.over, "interval", 0, fmt.Sprintf("with --traffic, measure for `TIME` from now (default %s with --cost-per-gib)", defaultMeasure))
	flags.Float64Var(&f.perGiB, "cost-per-gib", 0, "with --traffic, `PRICE` of 1 GiB between zones")
}

// check checks the flags together, and sets their defaults.
func (f *trafficFlags) check() error {
	switch {
	case f.over <= 0 && f.flags.Changed("interval"):
		return command.UsageErrorf("--interval %s is not allowed; it must be above 0, such as 1m", f.over)
	case f.perGiB < 0 || math.IsNaN(f.perGiB) || math.IsInf(f.perGiB, 0):
		return command.UsageErrorf("--cost-per-gib %v is not allowed; it must be a price that is not negative", f.perGiB)
	case !f.isWanted && (f.over > 0 || f.perGiB > 0):
		return command.UsageErrorf("--interval and --cost-per-gib are about traffic; give --traffic too")
	}
	if f.perGiB > 0 && f.over == 0 {
		f.over = defaultMeasure
	}
	return nil
}

func (f *statusFlags) runTraffic(ctx context.Context, s command.Streams, reach connector) error {
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	pods, err := r.proxies(ctx)
	if err != nil {
		return err
	}
	readings, err := r.traffic(ctx, pods)
	if err != nil {
		return err
	}
	m := trafficMeasure{pods, readings, f.traffic.over}
	if m.over > 0 {
		if readings, err = r.measure(ctx, s, &m); err != nil {
			return err
		}
	}
	r.noteLimits(readings, f.namespace())
	traffic := inspect.TrafficOf(readings, f.namespace(), m.over, f.traffic.perGiB)
	traffic.NotKnown = r.notKnown
	r.printMissing(s)
	if len(traffic.Services) == 0 {
		fmt.Fprintf(s.Err, "no traffic of Services in %s was counted\n", where(f.namespace()))
	}
	return f.output.write(s.Out, &traffic, func(p *page) {
		switch tables := (trafficTables{&traffic}); {
		case len(traffic.Services) == 0:
		case f.output.form == "wide":
			p.table("", tables.routes())
		default:
			p.table("", tables.services())
		}
	})
}

type trafficMeasure struct {
	pods  []proxyPod
	first []inspect.ProxyReading
	over  time.Duration
}

// measure waits and reads again. It returns rates per second. An interrupt ends the wait: over becomes the shorter time.
func (r *clusterReader) measure(ctx context.Context, s command.Streams, m *trafficMeasure) ([]inspect.ProxyReading, error) {
	fmt.Fprintf(s.Err, "Counting traffic for %s; Ctrl-C prints what there is.\n", m.over)
	begun := time.Now()
	if command.Pause(ctx, m.over) != nil {
		ctx, m.over = context.WithoutCancel(ctx), max(time.Millisecond, time.Since(begun).Round(time.Millisecond))
		fmt.Fprintf(s.Err, "Counted for %s.\n", m.over)
	}
	second, err := r.traffic(ctx, m.pods)
	if err != nil {
		return nil, err
	}
	rates, leftOut := inspect.TrafficSince(m.first, second)
	if len(rates) == 0 {
		return nil, fmt.Errorf("no vicinity-proxy has answered twice")
	}
	if len(leftOut) > 0 {
		r.leaveOut(fmt.Sprintf("vicinity-proxy has answered only once on %s, so the traffic from there is missing", inspect.NodeNames(leftOut)))
	}
	return rates, nil
}

// noteLimits notes where bytes are not counted, or not all, and what a namespace may lack.
func (r *clusterReader) noteLimits(readings []inspect.ProxyReading, namespace string) {
	var without []string
	together := false
	for i := range readings {
		if readings[i].WithoutBytes {
			without = append(without, readings[i].Node)
		}
		for key := range readings[i].Counts {
			together = together || key.Namespace == ""
		}
	}
	if len(without) > 0 {
		r.leaveOut(fmt.Sprintf("bytes are not counted on %s (sysctl net.netfilter.nf_conntrack_acct is 0, see docs/reference/traffic.md)", inspect.NodeNames(without)))
	}
	if nodes := inspect.LowerBoundOn(readings); len(nodes) > 0 {
		r.leaveOut(fmt.Sprintf("a flowtable can forward uncounted bytes on %s, so bytes and costs are at least the given ones (see docs/coexistence.md#flowtables)", inspect.NodeNames(nodes)))
	}
	if together && namespace != "" {
		r.leaveOut(fmt.Sprintf("proxies count Services beyond a limit together, so some of namespace %q may be missing", namespace))
	}
}
