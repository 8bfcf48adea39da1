package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/handover"
)

// groupSync writes the EndpointGroups of a Service, step by step, and hands the Service over to vicinity-proxy and
// back.
type groupSync struct {
	*pass
	d routing.Decision
	// notes are sentences for the condition, without numbers that change.
	notes  []string
	writes int // of objects
	// proxyChanged says that another proxy got the Service, so the Service that was read is out of date.
	proxyChanged bool
}

// maxGroupSteps bounds the steps of one sync. The next sync continues.
const maxGroupSteps = 8

// syncGroups writes the groups of a decision as far as that is safe now. It is waiting if another proxy got the Service.
func (s *pass) syncGroups(ctx context.Context, d *routing.Decision) (waiting bool, err error) {
	g := &groupSync{pass: s, d: *d}
	if err := g.run(ctx); err != nil {
		return false, err
	}
	d.Notes = append(d.Notes, g.notes...)
	s.slices += g.writes
	if d.Delivery == allocate.DeliveryGroups {
		s.record.noteGroupsWritten(d)
		if g.writes > 0 {
			s.noteMoved(d)
		}
	}
	if g.proxyChanged {
		s.requeueAfter(shell.BehindWait)
	}
	return g.proxyChanged, nil
}

func (s *groupSync) run(ctx context.Context) error {
	name := s.in.Service.Labels[v1alpha1.LabelServiceProxyName]
	wanted := s.d.Delivery == allocate.DeliveryGroups
	unproxied := routing.Unproxied(s.in, s.d)
	written := false
	if !wanted && !unproxied {
		var err error
		if s.d, err = routing.Leaving(s.in, s.d); err != nil {
			return err
		}
	}
	if wanted || len(s.in.Groups) > 0 && !unproxied {
		var err error
		if written, err = s.write(ctx, routing.GroupState{Now: s.now, HandOver: wanted && !unproxied && (name == "" || s.d.Shifting.Moves)}); err != nil {
			return err
		}
	}
	hand := handover.State{
		Service: s.key.String(), Wanted: wanted, Headless: unproxied, ProxyName: name, Hidden: s.hidden(), Unsliced: s.unsliced(), Groups: s.in.Groups, Written: written,
		Grace: s.options.HandBackGrace, Memory: s.record.handover,
	}
	if wanted && !unproxied {
		var err error
		if hand.Proxies, err = s.proxies.nodes(ctx); err != nil {
			return fmt.Errorf("reading which proxies are ready: %w", err)
		}
		if refused := routing.RefusedOutside(s.in, s.d, hand.Proxies); refused != "" {
			s.notes = append(s.notes, refused)
		}
	}
	return s.handOver(ctx, hand.Next(s.now))
}

func (s *groupSync) handOver(ctx context.Context, step handover.Step) error {
	before := s.record.handover
	s.record.handover = step.Memory
	s.notes = append(s.notes, step.Notes...)
	s.requeueAfter(step.After)
	if s.proxies.trackService(s.key, step) {
		s.requeueAfter(time.Millisecond)
	}
	switch {
	case step.Take:
		if err := s.giveTo(ctx, v1alpha1.ServiceProxyName); err != nil {
			return err
		}
		log.FromContext(ctx).Info("handed over to vicinity-proxy", "service", s.key.String(), "groups", len(s.in.Groups))
	case step.Release:
		if err := s.giveTo(ctx, ""); err != nil {
			s.record.handover = before
			return err
		}
		log.FromContext(ctx).Info("handed back to kube-proxy", "service", s.key.String())
	case step.Phase == handover.PhaseLeft:
		return s.removeAll(ctx)
	}
	return nil
}

func (s *groupSync) giveTo(ctx context.Context, proxy string) error {
	if _, err := s.patchService(ctx, "label "+v1alpha1.LabelServiceProxyName, shell.SetLabel(s.in.Service, v1alpha1.LabelServiceProxyName, proxy)); err != nil {
		return err
	}
	s.writes++
	s.proxyChanged = true
	return nil
}

// hidden returns the first slice that the label of vicinity-proxy hides from kube-proxy.
func (s *groupSync) hidden() string {
	first := ""
	for _, slice := range s.in.Slices {
		if slice.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName && (first == "" || slice.Name < first) {
			first = slice.Name
		}
	}
	return first
}

// unsliced returns the first address family whose slice Kubernetes has still to make.
func (s *groupSync) unsliced() corev1.IPFamily {
	if len(s.in.Service.Spec.Selector) == 0 {
		return ""
	}
	for _, family := range s.in.Service.Spec.IPFamilies {
		if !slices.ContainsFunc(s.in.Slices, func(slice *discoveryv1.EndpointSlice) bool { return string(slice.AddressType) == string(family) }) {
			return family
		}
	}
	return ""
}

func (s *groupSync) write(ctx context.Context, state routing.GroupState) (done bool, err error) {
	for range maxGroupSteps {
		changes := routing.Groups(s.in, s.d, state)
		if err := s.apply(ctx, changes); err != nil {
			return false, err
		}
		if !changes.Again {
			s.requeueAfter(changes.After)
			s.notes = append(s.notes, changes.Notes...)
			return true, nil
		}
	}
	s.requeueAfter(time.Millisecond)
	return false, nil
}

// apply makes the writes of one step in order. It stops at the first failure, because later writes may be unsafe
// without it.
func (s *groupSync) apply(ctx context.Context, changes groups.Changes) error {
	for _, group := range changes.Create {
		group = group.DeepCopy()
		if err := s.client.Create(ctx, group); err != nil {
			return fmt.Errorf("creating a group of %s: %w", s.key, err)
		}
		s.noteGroupWrite(group)
	}
	for _, group := range changes.Update {
		// The response is read into the object, which shares memory with the cache.
		group = group.DeepCopy()
		if err := s.client.Update(ctx, group); err != nil {
			return s.writeError(group, "writing", err)
		}
		s.noteGroupWrite(group)
	}
	for _, group := range changes.Delete {
		if err := s.remove(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

func (s *groupSync) remove(ctx context.Context, group *v1alpha1.EndpointGroup) error {
	if err := shell.Delete(ctx, s.client, group); err != nil {
		return s.writeError(group, "deleting", err)
	}
	s.writes++
	s.record.groups.Deleted(group, s.now)
	s.in.Groups = slices.DeleteFunc(s.in.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == group.Name })
	return nil
}

func (s *groupSync) noteGroupWrite(group *v1alpha1.EndpointGroup) {
	s.writes++
	s.record.groups.Wrote(group, s.now)
	i := slices.IndexFunc(s.in.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == group.Name })
	if i >= 0 {
		s.in.Groups[i] = group
	} else {
		s.in.Groups = append(s.in.Groups, group)
	}
}

// writeError returns the error of a write, and forgets the known state of the group, which may be out of date.
func (s *groupSync) writeError(group *v1alpha1.EndpointGroup, doing string, err error) error {
	s.record.groups.Forget(group)
	if err = shell.Changed(err); shell.IsChanged(err) {
		return err
	}
	return fmt.Errorf("%s group %s of %s: %w", doing, group.Name, s.key, err)
}

func (s *groupSync) removeAll(ctx context.Context) error {
	for _, group := range slices.Clone(s.in.Groups) {
		if group.DeletionTimestamp != nil || !metav1.IsControlledBy(group, s.in.Service) {
			continue
		}
		if err := s.remove(ctx, group); err != nil {
			return err
		}
	}
	return nil
}
