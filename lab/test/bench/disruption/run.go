package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/lab/test/evictions"
)

// died is how often a pod dies by itself during evictions.
const died = 500 * time.Millisecond

// crowd is how many workloads the storms have.
const crowd = 100

// run runs the benchmark and prints the figures.
func (o *options) run(ctx context.Context, out io.Writer) (err error) {
	begun := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(o.log, "%4.0f s  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	f := figures{options: o}
	if f.machine, err = meter.DescribeMachine(); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "bench-disruption-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	say("a lab with %d nodes", o.nodes)
	cluster, err := o.bringUp(ctx, folder)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, cluster.Down(ctx))
	}()
	client, err := cluster.Client()
	if err != nil {
		return err
	}
	at := func(name string) (*evictions.Field, error) {
		namespace, err := client.MakeNamespace(ctx, name)
		return &evictions.Field{
			Client: client, Shape: cluster.Shape(), Namespace: namespace, Kubectl: filepath.Join(o.bin, "kubectl"), Kubeconfig: cluster.Kubeconfig(),
		}, err
	}
	storm, err := at("storm")
	if err != nil {
		return err
	}
	if err := storm.Run(ctx, "", evictions.CrowdWorkloads(crowd)...); err != nil {
		return err
	}
	options := evictions.BudgetsOptions{Workloads: crowd, InFlight: o.inFlight, Evictions: o.evictions / 2, Died: died}
	for _, one := range []bool{false, true} {
		over, mine, natively := fmt.Sprintf("%d budgets", crowd), &f.many, &f.manyNative
		if one {
			over, mine, natively = "one budget", &f.one, &f.oneNative
		}
		options.OneBudget, options.Midway = one, nil
		say("%d evictions under PodDisruptionBudgets, over %s, begin", options.Evictions, over)
		if *natively, err = storm.EvictNatively(ctx, options); err != nil {
			return err
		}
		say("%d evictions over %s begin; under PodDisruptionBudgets %.0f were admitted a second", options.Evictions, over, natively.PerSecond())
		if !o.storm {
			options.Midway = func(ctx context.Context) error { return replaceReplica(ctx, client) }
		}
		if *mine, err = storm.EvictCrowd(ctx, options); err != nil {
			return err
		}
	}
	if err := errors.Join(client.RemoveNamespace(ctx, storm.Namespace), client.WaitGone(ctx, storm.Namespace)); err != nil {
		return err
	}
	if o.storm {
		say("done")
		_, err = io.WriteString(out, f.String())
		return err
	}
	service, err := at("service")
	if err != nil {
		return err
	}
	say("%d pods move a zone at a time", o.pods)
	f.byZone, err = service.Recycle(ctx, evictions.RecycleOptions{
		Pods: o.pods, StartTime: o.startTime, Nodes: recycledNodes, Patient: true,
		Budget: evictions.ByZone("service", "app", "service", `maxUnavailable: "100%"`, "maxUnavailableDomains: 1"),
	})
	if err != nil {
		return err
	}
	say("they move a pod at a time")
	f.native, err = service.Recycle(ctx, evictions.RecycleOptions{Pods: o.pods, StartTime: o.startTime, Nodes: recycledNodes, Patient: true, Within: o.native, Budget: evictions.OneAtATime("service")})
	if err != nil {
		return err
	}
	fleet, err := at("fleet")
	if err != nil {
		return err
	}
	for _, by := range []evictions.Updater{evictions.ByRollout, evictions.ByEvictor, evictions.ByNativeMax, evictions.ByNative} {
		say("a StatefulSet of %d pods is updated: %s", o.pods, updaterNames[by])
		options := evictions.UpdateOptions{By: by, Pods: o.pods, StartTime: o.startTime}
		if by == evictions.ByNative {
			options.Within = o.native
		}
		figures, err := fleet.Update(ctx, options)
		if err != nil {
			return fmt.Errorf("%s: %w", updaterNames[by], err)
		}
		f.updates = append(f.updates, figures)
	}
	idle, err := at("idle")
	if err != nil {
		return err
	}
	w := evictions.Workload{Name: "idle", Replicas: o.nodes}
	if err := idle.Run(ctx, evictions.ByZone("idle", "app", "idle", "maxUnavailable: 0"), w); err != nil {
		return err
	}
	pods, err := idle.Pods(ctx, w.Name, "")
	if err != nil {
		return err
	}
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	say("%d drainers ask in vain", len(names))
	if f.retry, err = idle.Retry(ctx, o.retry, names); err != nil {
		return err
	}
	say("done")
	_, err = io.WriteString(out, f.String())
	return err
}

// recycledNodes is how many nodes a service moves between.
const recycledNodes = 36

// bringUp makes the lab in a folder, with Vicinity.
func (o *options) bringUp(ctx context.Context, folder string) (*lab.Cluster, error) {
	wanted, err := shape.FromOptions(shape.Options{
		Name: fmt.Sprintf("bench-disruption-%d", os.Getpid()), NodesPerZone: []int{1}, FakeNodes: o.nodes, SingleStack: true, DNS: string(shape.DNSNone),
	})
	if err != nil {
		return nil, err
	}
	cluster, err := lab.Up(ctx, wanted, lab.Options{Root: folder, Program: filepath.Join(o.bin, "vicinity-lab")})
	if err != nil {
		return nil, fmt.Errorf("bringing a lab up: %w", err)
	}
	if err := cluster.InstallVicinity(ctx, "disruption.enabled=true", "rollouts.enabled=true"); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(err, cluster.Down(ctx))
	}
	return cluster, nil
}

// replaceReplica kills one of the controller's pods, and waits for another.
func replaceReplica(ctx context.Context, client *lab.Client) error {
	ready := func() (names []string, err error) {
		list, err := client.CoreV1().Pods(release.Namespace).List(ctx, metav1.ListOptions{LabelSelector: evictions.ControllerSelector})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil && kube.PodReady(p) {
				names = append(names, p.Name)
			}
		}
		return names, nil
	}
	before, err := ready()
	if err != nil {
		return err
	}
	if len(before) < 2 {
		return fmt.Errorf("%d pods of the controller are ready, want 2", len(before))
	}
	err = client.CoreV1().Pods(release.Namespace).Delete(ctx, before[0], metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err != nil {
		return err
	}
	return kube.Wait(ctx, "a killed pod of the controller to be replaced", func(context.Context) (string, error) {
		now, err := ready()
		if err == nil && len(now) < len(before) {
			return fmt.Sprintf("%d are ready", len(now)), nil
		}
		return "", err
	})
}
