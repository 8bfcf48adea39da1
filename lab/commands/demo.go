package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

type demoFlags struct {
	*labFlags
	rate     float64
	duration time.Duration
	price    float64
	installFlags
	// given are the flags of the shape.
	given []string
}

func newLabDemoCommand(s command.Streams, lf *labFlags) *cobra.Command {
	f := demoFlags{labFlags: lf}
	shaped := &shapeFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show traffic between zones, its cost, and how to avoid it",
		Long: `Demo brings a lab up, unless it is up, and runs an echo Service with endpoints and clients in
each zone. It sends traffic, sets the annotation endpointslice.kubernetes.io/same-zone: Prefer,
and shows what crosses zones before and after, and the cost in a month.

The lab stays up; "lab down" removes it. If a lab is up already, flags for its shape are
refused.`,
		Example: `  vicinity lab demo
  vicinity lab demo --rate 500 --duration 20s`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.validate(), f.installFlags.validate()); err != nil {
				return err
			}
			wanted, err := shaped.shape(lf)
			if err != nil {
				return err
			}
			if wanted.ControlPlaneOnly {
				return command.UsageErrorf("--control-plane-only gives no network to show")
			}
			f.given = shaped.given()
			return f.run(cmd.Context(), s, wanted)
		},
	}
	shaped.register(cmd)
	f.registerRelease(cmd)
	flags := cmd.Flags()
	shaped.Proxy = string(shape.ProxyBoth)
	flags.Lookup("proxy").DefValue = shaped.Proxy
	flags.Float64Var(&f.rate, "rate", 300, "`NUMBER` of requests a second, from all clients together")
	flags.DurationVar(&f.duration, "duration", 5*time.Second, "`TIME` to send traffic before and after the change")
	flags.Float64Var(&f.price, "price", 0.02, "`PRICE` of 1 GiB between zones, in your currency")
	return cmd
}

func (f *demoFlags) validate() error {
	switch {
	case f.rate <= 0:
		return command.UsageErrorf("--rate %v is not allowed; it must be above 0", f.rate)
	case f.duration < time.Second:
		return command.UsageErrorf("--duration %v is not allowed; it must be at least 1s", f.duration)
	case f.price < 0:
		return command.UsageErrorf("--price %v is not allowed; it must not be below 0", f.price)
	}
	return nil
}

// The demo's namespace and Service.
const (
	demoNamespace = "demo"
	demoService   = "echo"
)

func (f *demoFlags) run(ctx context.Context, s command.Streams, wanted shape.Shape) error {
	dns, err := dnsInstaller(wanted, f.options(s.Err))
	if err != nil {
		return err
	}
	cluster, found, err := f.cluster(ctx, s, wanted)
	if err != nil {
		return err
	}
	if found {
		dns = func(context.Context, *lab.Cluster) error { return nil }
	}
	d := &demo{demoFlags: *f, cluster: cluster, out: s.Out}
	for _, zone := range cluster.Shape().Zones {
		d.zones = append(d.zones, zone.Name)
	}
	if d.client, err = cluster.Client(); err != nil {
		return err
	}
	// The demo needs no names, so its Service does not wait for the DNS server.
	answers := make(chan error, 1)
	go func() { answers <- dns(ctx, cluster) }()
	err = d.deploy(ctx)
	if err := errors.Join(err, <-answers); err != nil {
		return err
	}
	d.say("\nThe Service as Kubernetes makes it: every endpoint is as good as any other.\n")
	before, err := d.measure(ctx)
	if err != nil {
		return err
	}
	d.say("\nNow with the annotation endpointslice.kubernetes.io/same-zone: Prefer.\n")
	if err := d.prefer(ctx); err != nil {
		return err
	}
	after, err := d.measure(ctx)
	if err != nil {
		return err
	}
	d.say("\n%s%s", d.compare(before, after), d.goOn(strings.TrimSuffix(os.Args[0], "-lab"), before, after))
	return after.wrong()
}

func (f *demoFlags) cluster(ctx context.Context, s command.Streams, wanted shape.Shape) (cluster *lab.Cluster, found bool, err error) {
	options := f.options(s.Err)
	cluster, err = lab.Open(wanted.Name, options)
	found = err == nil
	if found && len(f.given) > 0 {
		return nil, found, command.UsageErrorf("lab %q is up already and stays as it is, so %s does nothing; leave it out, or take the lab down first",
			wanted.Name, strings.Join(f.given, ", "))
	}
	if !found {
		if cluster, err = lab.Up(ctx, wanted, options); err != nil {
			return nil, found, err
		}
	}
	installed, err := cluster.VicinityInstalled(ctx)
	if err != nil || installed {
		return cluster, found, err
	}
	return cluster, found, f.install(ctx, cluster)
}

type demo struct {
	demoFlags
	cluster *lab.Cluster
	client  *lab.Client
	zones   []string
	out     io.Writer
}

// settleTime limits how long the deployed objects may take to work.
const settleTime = time.Minute

func (d *demo) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	begun := time.Now()
	err := d.client.Apply(ctx, demoNamespace, lab.DemoManifests(demoNamespace, len(d.zones)))
	if err != nil {
		return err
	}
	// An earlier demo may have left its annotations.
	asked, byVicinity := map[string]any{v1alpha1.AnnotationSameZone: nil, v1alpha1.AnnotationProxy: nil}, d.cluster.Shape().Proxy.Vicinity()
	if byVicinity {
		asked[v1alpha1.AnnotationProxy] = "true"
	}
	if err := d.annotate(ctx, asked); err != nil {
		return err
	}
	for _, deployment := range []string{"echo", "client"} {
		if err := d.client.WaitDeployment(ctx, demoNamespace, deployment); err != nil {
			return err
		}
	}
	if err := d.client.WaitHints(ctx, demoNamespace, demoService, false); err != nil {
		return err
	}
	by := "kube-proxy"
	if byVicinity {
		by = "vicinity-proxy"
		if err := d.handedOver(ctx); err != nil {
			return err
		}
	}
	if err := d.answers(ctx); err != nil {
		return err
	}
	d.say("Service %s in namespace %s: %d endpoints and 1 client in each of %s, served by %s after %.1f s.\n",
		demoService, demoNamespace, lab.DemoEndpoints, strings.Join(d.zones, ", "), by, time.Since(begun).Seconds())
	return nil
}

// annotate sets annotations of the Service, and removes an annotation whose value is nil.
func (d *demo) annotate(ctx context.Context, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	return d.client.PatchService(ctx, demoNamespace, demoService, string(patch))
}

// handedOver waits until vicinity-proxy serves the Service on all nodes.
func (d *demo) handedOver(ctx context.Context) error {
	return kube.Wait(ctx, "vicinity-proxy to serve the Service", func(ctx context.Context) (string, error) {
		service, err := d.client.CoreV1().Services(demoNamespace).Get(ctx, demoService, metav1.GetOptions{})
		if err != nil || service.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName {
			return "", err
		}
		if condition := routing.ConditionOf(service); condition != nil {
			return condition.Message, nil
		}
		return "it has no condition yet", nil
	})
}

func (d *demo) prefer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	err := d.annotate(ctx, map[string]any{v1alpha1.AnnotationSameZone: v1alpha1.Prefer})
	if err != nil {
		return err
	}
	if !d.cluster.Shape().Proxy.Vicinity() {
		if err := d.client.WaitHints(ctx, demoNamespace, demoService, true); err != nil {
			return err
		}
	}
	// Kube-proxies read changes once a second. If traffic does not stay near for another reason, the
	// figures show it.
	ctx, cancel = context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = kube.Wait(ctx, "traffic to stay in its zone", func(ctx context.Context) (string, error) {
		result, err := d.probe(ctx)
		if err != nil || result.InZone() == 1 {
			return "", err
		}
		return "it does not yet", nil
	})
	if err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// probe sends just enough traffic to see where it goes.
func (d *demo) probe(ctx context.Context) (load.Result, error) {
	return d.cluster.Load(ctx, lab.LoadOptions{
		Namespace: demoNamespace, Service: demoService,
		Plan: load.Plan{Rate: 20, Duration: 400 * time.Millisecond},
	})
}

// answers waits until the Service answers the clients of all zones, also from other zones: an earlier
// demo may have left a preference.
func (d *demo) answers(ctx context.Context) error {
	return kube.Wait(ctx, "the Service to answer", func(ctx context.Context) (string, error) {
		result, err := d.probe(ctx)
		if err != nil {
			return "", err
		}
		if failed := result.Failed(); failed > 0 {
			return fmt.Sprintf("%d requests failed", failed), nil
		}
		if len(d.zones) > 1 && result.InZone() == 1 {
			return "it answers from the client's zone alone", nil
		}
		return "", nil
	})
}

func (d *demo) measure(ctx context.Context) (measurement, error) {
	before, err := d.cluster.Traffic()
	if err != nil {
		return measurement{}, err
	}
	result, err := d.cluster.Load(ctx, lab.LoadOptions{
		Namespace: demoNamespace, Service: demoService,
		Plan: load.Plan{Rate: d.rate, Duration: d.duration},
	})
	if err != nil {
		return measurement{}, err
	}
	if ctx.Err() != nil {
		return measurement{}, ctx.Err()
	}
	now, err := d.cluster.Traffic()
	if err != nil {
		return measurement{}, err
	}
	m := measurement{result: result, traffic: now.Since(before)}
	d.say("%s", d.picture(m))
	return m, nil
}

type measurement struct {
	result  load.Result
	traffic lab.Traffic
}

func (m measurement) took() time.Duration { return m.result.End.Sub(m.result.Start) }

func (m measurement) crossing() float64 {
	if m.took() <= 0 {
		return 0
	}
	return float64(m.traffic.CrossZone()) / m.took().Seconds()
}

// shares is the share of each zone in the answers to each zone's clients.
func (m measurement) shares(zones []string) [][]float64 {
	counts := make([][]float64, len(zones))
	for i := range counts {
		counts[i] = make([]float64, len(zones))
	}
	for _, flow := range m.result.Flows {
		from, to := slices.Index(zones, flow.Zone), slices.Index(zones, flow.To.Zone)
		if from >= 0 && to >= 0 {
			counts[from][to] += float64(flow.Answers)
		}
	}
	for _, row := range counts {
		sum := 0.0
		for _, n := range row {
			sum += n
		}
		for i := range row {
			if sum > 0 {
				row[i] /= sum
			}
		}
	}
	return counts
}
