package routing

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/handover"
)

// groupWriter writes the EndpointGroups of Services, one step of package
// internal/routing after another, and hands Services over to vicinity-proxy and back.
type groupWriter struct {
	client  client.Client
	clock   clock.PassiveClock
	grace   time.Duration // until groups go
	proxies *proxyTable
}

func newGroupWriter(c client.Client, now clock.PassiveClock, options Options) *groupWriter {
	return &groupWriter{
		client:  c,
		clock:   now,
		grace:   options.HandBackGrace,
		proxies: newProxyTable(c, now, options.ProxyNodes),
	}
}

type groupRecord struct {
	written shell.Overlay[*v1alpha1.EndpointGroup]
	memory  handover.Memory
}

type groupProgress struct {
	notes  []string
	again  time.Duration
	writes int // of objects
	// given says that the Service was given to another proxy, so that what was read of it
	// is out of date.
	given bool
}

// maxGroupSteps bounds the steps of one sync; the next one goes on.
const maxGroupSteps = 8

// deliver writes what the decision asks for as far as that is safe now. The groups of the
// input are the current ones.
func (w *groupWriter) deliver(ctx context.Context, r *record, in routing.Input, d routing.Decision) (groupProgress, error) {
	s := &groupSync{groupWriter: w, key: client.ObjectKeyFromObject(in.Service), in: in, d: d, now: w.clock.Now(), record: r}
	s.in.Groups = slices.Clone(in.Groups)
	err := s.run(ctx)
	return s.progress, err
}

func (w *groupWriter) forget(key types.NamespacedName, r *record) {
	r.groups.memory = handover.Memory{}
	w.proxies.forget(key)
}

type groupSync struct {
	*groupWriter
	key      types.NamespacedName
	in       routing.Input
	d        routing.Decision
	now      time.Time
	record   *record
	progress groupProgress
}

func (s *groupSync) requeueAfter(wait time.Duration) {
	s.progress.again = shell.Sooner(s.progress.again, wait)
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
		if written, err = s.write(ctx, routing.GroupState{Now: s.now, HandOver: wanted && name == "" && !unproxied}); err != nil {
			return err
		}
	}
	hand := handover.State{
		Service: s.key.String(), Wanted: wanted, Headless: unproxied, ProxyName: name, Hidden: s.hidden(), Unsliced: s.unsliced(), Groups: s.in.Groups, Written: written,
		Grace: s.grace, Memory: s.record.groups.memory,
	}
	if wanted && !unproxied {
		var err error
		if hand.Proxies, err = s.proxies.nodes(ctx); err != nil {
			return fmt.Errorf("reading which proxies are ready: %w", err)
		}
	}
	return s.handOver(ctx, hand.Next(s.now))
}

// hidden is the first slice that kube-proxy does not see because of the label of
// vicinity-proxy.
func (s *groupSync) hidden() string {
	first := ""
	for _, slice := range s.in.Slices {
		if slice.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName && (first == "" || slice.Name < first) {
			first = slice.Name
		}
	}
	return first
}

// unsliced is the first address family whose slice Kubernetes has still to make.
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
			s.progress.notes = append(s.progress.notes, changes.Notes...)
			return true, nil
		}
	}
	s.requeueAfter(time.Millisecond)
	return false, nil
}

// apply makes the writes of one step in their order, and stops at the first that
// fails: what follows may not be safe without it.
func (s *groupSync) apply(ctx context.Context, changes groups.Changes) error {
	for _, group := range changes.Create {
		group = group.DeepCopy()
		if err := s.client.Create(ctx, group); err != nil {
			return fmt.Errorf("creating a group of %s: %w", s.key, err)
		}
		s.wrote(group)
	}
	for _, group := range changes.Update {
		// The response is read into the object, which shares parts with the cache.
		group = group.DeepCopy()
		if err := s.client.Update(ctx, group); err != nil {
			return s.failed(group, "writing", err)
		}
		s.wrote(group)
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
		return s.failed(group, "deleting", err)
	}
	s.progress.writes++
	s.record.groups.written.Deleted(group, s.now)
	s.in.Groups = slices.DeleteFunc(s.in.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == group.Name })
	return nil
}

func (s *groupSync) wrote(group *v1alpha1.EndpointGroup) {
	s.progress.writes++
	s.record.groups.written.Wrote(group, s.now)
	i := slices.IndexFunc(s.in.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == group.Name })
	if i >= 0 {
		s.in.Groups[i] = group
	} else {
		s.in.Groups = append(s.in.Groups, group)
	}
}

// failed is the error of a write that did not succeed. What was known of the group may not
// be true then.
func (s *groupSync) failed(group *v1alpha1.EndpointGroup, doing string, err error) error {
	s.record.groups.written.Forget(group)
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
