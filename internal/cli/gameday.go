package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/internal/inspect/gameday"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/report"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
)

// gameDayMargin is how long a shift outlasts its run if the command dies.
const gameDayMargin = time.Minute

// gameDay is a practice run.
type gameDay struct {
	*shiftRun
	shiftFlags
	streams          command.Streams
	before, interval time.Duration
	file             string

	run  gameday.Run
	pods []proxyPod // that count
	// counted are the connections before the shift.
	counted map[string]gameday.Ended
	// last is the last reading of the proxies, and settled the first one with the shift in force after its ramp.
	last, settled []inspect.ProxyReading
	wasSettled    bool
}

func newGameDayCommand(s command.Streams, reach connector) *cobra.Command {
	g := gameDay{streams: s}
	cmd := &cobra.Command{
		Use:   "gameday ZONE --for DURATION --reason TEXT",
		Short: "Practise the loss of a zone, and compare it with the prediction",
		Long: `Gameday takes a zone out of service for a while and brings it back, as "vicinity shift" does.
It shows what should happen and what "doctor --lose" finds, and asks. Then it counts connections
of vicinity-proxy, shifts, watches, goes back, and compares the load that endpoints outside get
on top with the prediction. docs/zone-shifts.md shows a weekly run.

Ctrl-C goes back at once, and reports. So does the yield of a Service that should move. If the
command dies, the shift ends by itself a minute after the time of the run.

The exit code is 1 if the run is refused, ends early, or a measured load differs from the
prediction by more than 5 points.`,
		Example: `  vicinity gameday zone-a --for 15m --reason "practice"
  vicinity gameday zone-a --for 15m --reason "practice" --yes --report zone-a.html`,
		Args: oneName("zone"),
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case g.interval <= 0 || g.before <= 0:
				return errors.New("--interval and --before must be above 0, such as 10s")
			case g.spec.For.Duration <= g.spec.Ramp.Duration:
				return fmt.Errorf("--for %s is not allowed; it must be longer than --ramp", plaintext.Span(g.spec.For.Duration))
			}
			return g.check(s, true)
		},
		ValidArgsFunction: reach.complete("zones"),
	}
	flags := cmd.Flags()
	g.add(flags)
	flags.DurationVar(&g.before, "before", time.Minute, "how long connections are counted before the shift")
	flags.DurationVar(&g.interval, "interval", 10*time.Second, "`TIME` between two lines")
	flags.StringVar(&g.file, "report", "", "write the report to `FILE` as a page of HTML, too")
	return reach.shiftCommand(s, cmd, func(ctx context.Context, r *shiftRun) error {
		g.shiftRun = r
		return g.practise(ctx)
	}, "text", "json", "yaml")
}

// practise makes the run, and reports it.
func (g *gameDay) practise(ctx context.Context) (err error) {
	out, output, length := g.out, g.output, g.spec.For.Duration
	if output.form != "text" {
		g.out, g.output.form = printable{g.streams.Err}, "text"
	}
	g.spec.For.Duration = min(length+gameDayMargin, longestShift)
	zs := g.shift(g.shiftRun)
	if err := g.rehearse(ctx, zs); err != nil {
		return err
	}
	if err := g.countBefore(ctx); err != nil {
		return err
	}
	var page *os.File
	if g.file != "" {
		if page, err = os.Create(g.file); err != nil {
			return fmt.Errorf("creating the report, before anything changes: %w", err)
		}
	}
	g.run.Begun = metav1.Now()
	zs.CreationTimestamp = g.run.Begun
	timed, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	if zs, err = g.create(timed, zs); zs == nil {
		return err
	}
	if err == nil {
		zs, err = g.follow(timed, zs)
	}
	early := ""
	switch {
	case ctx.Err() != nil:
		early = "it was interrupted"
	case err != nil && timed.Err() == nil:
		early = command.OneLine(err)
	case len(g.run.Samples) == 0:
		early = "the shift was not in force in its time"
	}
	g.run.Seconds = time.Since(g.run.Begun.Time).Round(time.Second).Seconds()
	g.now = time.Now()
	if early != "" {
		g.print("Going back at once: %s", early)
	} else if err := g.rampUp(ctx, zs); err != nil { // also by an interrupt
		fmt.Fprintf(g.err, "%s; going back without the ramp\n", command.OneLine(err))
	}
	if err = g.remove(context.WithoutCancel(ctx), zs); err != nil {
		err = fmt.Errorf("%w; the shift ends by itself at %s", err, plaintext.Clock(g.run.Begun.Add(g.spec.For.Duration)))
	}
	g.leaveOut("errors and latency, which Vicinity does not see: look at the dashboards of your applications")
	g.run.NotMeasured = g.notKnown
	failed := g.run.Finish(early)
	err = errors.Join(err, output.write(out, &g.run, g.writeText))
	if page != nil {
		err = errors.Join(err, report.GameDay(page, &g.run), page.Close())
	}
	if failed {
		return errors.Join(errors.New(g.run.Result), err)
	}
	return err
}

// rehearse shows the prediction, and asks.
func (g *gameDay) rehearse(ctx context.Context, zs *v1alpha1.ZoneShift) error {
	preview, err := g.preview(ctx, zs)
	if err != nil {
		return err
	}
	g.run = gameday.Run{
		From: g.spec.From, Reason: g.spec.Reason, Services: []gameday.Service{}, Yields: namesOf(preview.Yields), Samples: []gameday.Sample{},
		Findings: []doctor.Finding{}, Next: []string{"vicinity status --traffic -o wide --interval 1m"},
	}
	for _, s := range preview.Moves {
		g.run.Services = append(g.run.Services, gameday.Service{Name: s.Namespace + "/" + s.Name, Outside: s.Outside, Predicted: s.Overload})
	}
	p := &page{w: g.out}
	preview.writeText(p)
	if g.spec.From.Key == topology.Zone {
		g.run.Next = append(g.run.Next, "vicinity doctor --lose "+g.spec.From.Value)
		loss := lossFlags{zone: g.spec.From.Value, maxOverload: g.spec.MaxOverload}
		if rehearsal, err := loss.rehearse(ctx, g.clusterReader, nil); err != nil {
			g.leaveOut("what breaks if the zone goes entirely: " + command.OneLine(err))
		} else {
			g.run.Findings, g.notKnown = rehearsal.Findings, slices.Concat(g.notKnown, rehearsal.NotKnown)
			findingsText(p, rehearsal)
		}
	}
	g.printMissing(g.streams)
	return errors.Join(p.err, g.confirm(ctx, g.streams, preview))
}

func (g *gameDay) writeText(p *page) {
	p.printf("\nResult: %s\n\n", g.run.Result)
	if table := g.run.Load(); len(table.Rows) > 0 {
		p.longTable("load on top of the endpoints outside", table)
	}
	p.list("not measured", g.run.NotMeasured)
	p.list("next", g.run.Next)
}

// countBefore counts connections before the shift.
func (g *gameDay) countBefore(ctx context.Context) (err error) {
	if g.spec.From.Key != topology.Zone {
		g.leaveOut("connections, which vicinity-proxy counts by zone only")
	} else if g.pods, err = g.proxies(ctx); err != nil {
		g.leaveOut("connections: " + command.OneLine(err))
	}
	if first := g.readProxies(ctx); first != nil {
		g.print("Counting connections for %s before the shift.", plaintext.Span(g.before))
		_ = command.Pause(ctx, g.before) // an interrupt is returned
		g.last = g.readProxies(ctx)
		g.counted = gameday.Count(first, g.last, g.spec.From.Value)
	}
	return ctx.Err()
}

// readProxies returns nil if nothing counts.
func (g *gameDay) readProxies(ctx context.Context) []inspect.ProxyReading {
	if len(g.pods) == 0 {
		return nil
	}
	readings, err := g.traffic(ctx, g.pods)
	if err != nil && ctx.Err() == nil {
		g.leaveOut("connections: " + command.OneLine(err))
	}
	return readings
}

// follow takes samples until the time of ctx is over. It returns the ZoneShift as last read.
func (g *gameDay) follow(ctx context.Context, zs *v1alpha1.ZoneShift) (*v1alpha1.ZoneShift, error) {
	for {
		if err := command.Pause(ctx, g.interval); err != nil {
			return zs, err
		}
		g.now = time.Now()
		now, lasting, err := g.read(ctx)
		if err == nil {
			zs = now
			lasting, err = g.sample(ctx, zs)
		}
		switch {
		case lasting:
			return zs, err
		case err != nil && ctx.Err() == nil:
			g.print("%s; trying again", command.OneLine(err))
		}
	}
}

// sample notes the state of the shift, and prints it. isYield says that the error is a reason to go back.
func (g *gameDay) sample(ctx context.Context, zs *v1alpha1.ZoneShift) (isYield bool, err error) {
	effect, err := g.effect(ctx, zs)
	if err != nil {
		return false, err
	}
	outside, least := map[string]int{}, 0
	for i, s := range effect.Moves {
		outside[s.Namespace+"/"+s.Name] = s.Outside
		if i == 0 || s.Outside < least {
			least = s.Outside
		}
	}
	readings, pending, zone := g.readProxies(ctx), g.pendingPods(ctx), g.spec.From.Value
	running, _ := shift.Of(zs, g.now)
	isSettled := meta.IsStatusConditionTrue(zs.Status.Conditions, v1alpha1.ConditionInForce) && running != nil && running.Weight == 0
	if g.settled == nil && isSettled {
		g.settled = readings
	}
	sample, busiest := g.run.Sample(g.counted, gameday.Count(g.last, readings, zone), gameday.Count(g.settled, readings, zone), outside)
	g.last = readings
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	var parts []string
	yields := namesOf(effect.Yields)
	for _, s := range g.run.Services { // one without a ready endpoint outside does not move, either
		if outside[s.Name] == 0 && slices.ContainsFunc(effect.Stays, func(stays v1alpha1.StayingService) bool { return stays.Namespace+"/"+stays.Name == s.Name }) {
			yields = append(yields, s.Name)
		}
	}
	yields = slices.DeleteFunc(yields, func(name string) bool { return slices.Contains(g.run.Yields, name) })
	if len(yields) > 0 {
		parts = append(parts, "not predicted to yield: "+plaintext.FirstOf(yields, mostListed))
		err = errors.New(parts[0])
	}
	if g.wasSettled && !isSettled {
		parts = append(parts, "no longer in force")
	}
	g.wasSettled = isSettled
	traffic := "no connection was counted"
	if sample.InDomain != nil {
		traffic = fmt.Sprintf("%.1f %% of new connections end in the domain", *sample.InDomain)
	}
	_, message := stateOf(zs)
	parts = append(parts, traffic, effectOf(&zs.Status), message, pending, fmt.Sprintf("at least %s outside", plaintext.Plural(least, "ready endpoint")))
	if busiest != nil {
		parts = append(parts, fmt.Sprintf("the busiest is %s with %.1f %% on top, %d %% predicted", busiest.Name, *busiest.Measured, busiest.Predicted))
	}
	passed := g.now.Sub(g.run.Begun.Time).Round(time.Second)
	sample.Second, sample.State = passed.Seconds(), plaintext.Span(passed)+": "+strings.Join(parts, "; ")
	g.run.Samples = append(g.run.Samples, sample)
	g.print("%s", sample.State)
	return err != nil, err
}

func (g *gameDay) pendingPods(ctx context.Context) string {
	options := metav1.ListOptions{FieldSelector: "status.phase=" + string(corev1.PodPending)}
	pods, err := listAll[corev1.Pod](ctx, g.typed.CoreV1().Pods(metav1.NamespaceAll), options)
	if err != nil {
		if ctx.Err() == nil {
			g.leaveOut("pending pods: " + command.OneLine(g.explained("reading Pods", err)))
		}
		return "pending pods are unknown"
	}
	return plaintext.Plural(len(pods), "pending pod")
}

func namesOf(list []shiftedService) []string {
	names := []string{} // JSON writes nil as null
	for _, s := range list {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return names
}
