package main

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// at returns a namespace of the lab for evictions.
func (b *bench) at(ctx context.Context, name string) (*evictions.Field, error) {
	namespace, err := b.Client.MakeNamespace(ctx, name)
	return &evictions.Field{
		Client: b.Client, Shape: b.Cluster.Shape(), Namespace: namespace, Kubectl: b.kubectl, Kubeconfig: b.Cluster.Kubeconfig(),
	}, err
}

func (b *bench) measure(ctx context.Context) error {
	b.Say("a lab with %d nodes", nodes)
	err := b.Up(ctx, shape.Options{NodesPerZone: []int{1}, FakeNodes: nodes, SingleStack: true, DNS: string(shape.DNSNone)}, nil)
	if err != nil {
		return err
	}
	if err := b.Cluster.InstallVicinity(ctx, "disruption.enabled=true", "rollouts.enabled=true"); err != nil {
		return err
	}
	if err := b.evict(ctx); err != nil || b.storm {
		return err
	}
	if err := b.move(ctx); err != nil {
		return err
	}
	return b.update(ctx)
}

func (b *bench) evict(ctx context.Context) error {
	f := &b.figures
	storm, err := b.at(ctx, "storm")
	if err != nil {
		return err
	}
	if err := storm.Run(ctx, "", evictions.CrowdWorkloads(crowd)...); err != nil {
		return err
	}
	options := evictions.BudgetsOptions{Workloads: crowd, InFlight: b.inFlight, Evictions: b.evictions / 2, Died: died}
	for _, one := range []bool{false, true} {
		over, mine, natively := fmt.Sprintf("%d budgets", crowd), &f.many, &f.manyNative
		if one {
			over, mine, natively = "one budget", &f.one, &f.oneNative
		}
		options.OneBudget, options.Midway = one, nil
		b.Say("%d evictions under PodDisruptionBudgets, over %s, begin", options.Evictions, over)
		if *natively, err = storm.EvictNatively(ctx, options); err != nil {
			return err
		}
		b.Say("%d evictions over %s begin; under PodDisruptionBudgets %.0f were admitted a second", options.Evictions, over, natively.PerSecond())
		if !b.storm {
			options.Midway = func(ctx context.Context) error { return replaceReplica(ctx, b.Client) }
		}
		if *mine, err = storm.EvictCrowd(ctx, options); err != nil {
			return err
		}
	}
	return errors.Join(b.Client.RemoveNamespace(ctx, storm.Namespace), b.Client.WaitGone(ctx, storm.Namespace))
}

func (b *bench) move(ctx context.Context) error {
	f := &b.figures
	service, err := b.at(ctx, "service")
	if err != nil {
		return err
	}
	b.Say("%d pods move a zone at a time", pods)
	f.byZone, err = service.Recycle(ctx, evictions.RecycleOptions{
		Pods: pods, StartTime: startTime, Nodes: recycledNodes,
		Budget: evictions.ByZone("service", "app", "service", `maxUnavailable: "100%"`, "maxUnavailableDomains: 1"),
	})
	if err != nil {
		return err
	}
	b.Say("they move a pod at a time")
	f.native, err = service.Recycle(ctx, evictions.RecycleOptions{Pods: pods, StartTime: startTime, Nodes: recycledNodes, Within: b.native, Budget: evictions.OneAtATime("service")})
	return err
}

func (b *bench) update(ctx context.Context) error {
	fleet, err := b.at(ctx, "fleet")
	if err != nil {
		return err
	}
	for _, by := range []evictions.Updater{evictions.ByRollout, evictions.ByEvictor, evictions.ByNativeMax, evictions.ByNative} {
		b.Say("a StatefulSet of %d pods is updated: %s", pods, updaterNames[by])
		options := evictions.UpdateOptions{By: by, Pods: pods, StartTime: startTime}
		if by == evictions.ByNative {
			options.Within = b.native
		}
		figures, err := fleet.Update(ctx, options)
		if err != nil {
			return fmt.Errorf("%s: %w", updaterNames[by], err)
		}
		b.figures.updates = append(b.figures.updates, figures)
	}
	return nil
}

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
