package routing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/groups"
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

// groupRecord is what is known of a Service's groups between syncs.
type groupRecord struct {
	// written are groups as they were written, by name, as long as the cache may not
	// show them.
	written map[string]*v1alpha1.EndpointGroup
	// deleted are the UIDs of groups that the cache may still show.
	deleted map[types.UID]bool
	trust   trust
	memory  routing.HandOverMemory
}

func newGroupRecord() groupRecord {
	return groupRecord{written: map[string]*v1alpha1.EndpointGroup{}, deleted: map[types.UID]bool{}}
}

// maxGroupSteps bounds the steps of one sync; the next one goes on.
const maxGroupSteps = 8

// deliver writes what the decision asks for as far as it can be done now. The groups
// of the input are the current ones.
func (w *groupWriter) deliver(ctx context.Context, r *record, in routing.Input, d routing.Decision) (groupProgress, error) {
	s := &groupSync{groupWriter: w, key: client.ObjectKeyFromObject(in.Service), in: in, d: d, now: w.clock.Now(), record: r}
	s.in.Groups = slices.Clone(in.Groups)
	err := s.run(ctx)
	return s.progress, err
}

// rest notes that there is nothing to do for a Service, and that a hand-over, when
// there is one, begins anew.
func (w *groupWriter) rest(key types.NamespacedName, r *record) {
	r.groups.memory = routing.HandOverMemory{}
	w.proxies.forget(key)
}

// current are the groups as they are by now: the cache is behind what was written.
// Without this, a group that the cache does not show would be created twice.
func (r *groupRecord) current(cached []*v1alpha1.EndpointGroup, now time.Time) []*v1alpha1.EndpointGroup {
	if r.trust.left(now) == 0 {
		clear(r.written)
		clear(r.deleted)
	}
	shown := make(map[types.UID]bool, len(cached))
	current := make([]*v1alpha1.EndpointGroup, 0, len(cached)+len(r.written))
	for _, group := range cached {
		shown[group.UID] = true
		switch written := r.written[group.Name]; {
		case r.deleted[group.UID]:
		case written == nil:
			current = append(current, group)
		case written.UID == group.UID && behind(group, written.ResourceVersion):
			current = append(current, written)
			delete(shown, group.UID)
		default:
			delete(r.written, group.Name)
			current = append(current, group)
		}
	}
	for uid := range r.deleted {
		if !shown[uid] {
			delete(r.deleted, uid)
		}
	}
	for name, group := range r.written {
		if !slices.ContainsFunc(current, func(g *v1alpha1.EndpointGroup) bool { return g.Name == name }) {
			current = append(current, group)
		}
	}
	slices.SortFunc(current, func(a, b *v1alpha1.EndpointGroup) int { return strings.Compare(a.Name, b.Name) })
	return current
}

// trusted is how long what the cache does not show still counts, zero if there is no
// such thing. No event tells that it will never be shown, as when somebody deletes a
// group that has just been made.
func (r *groupRecord) trusted(now time.Time) time.Duration {
	if len(r.written)+len(r.deleted) == 0 {
		return 0
	}
	return r.trust.left(now)
}

// groupSync is one sync of a Service's groups.
type groupSync struct {
	*groupWriter
	key      types.NamespacedName
	in       routing.Input
	d        routing.Decision
	now      time.Time
	record   *record
	progress groupProgress
}

// come asks to be called again after some time, the least of all that are asked for.
func (s *groupSync) come(after time.Duration) {
	if after > 0 && (s.progress.again == 0 || after < s.progress.again) {
		s.progress.again = after
	}
}

func (s *groupSync) run(ctx context.Context) error {
	name := s.in.Service.Labels[v1alpha1.LabelServiceProxyName]
	wanted := s.d.Delivery == routing.DeliveryGroups
	written := false
	if !wanted {
		var err error
		if s.d, err = routing.Leaving(s.in, s.d); err != nil {
			return err
		}
	}
	if wanted || len(s.in.Groups) > 0 {
		var err error
		if written, err = s.write(ctx, routing.GroupState{Now: s.now, HandOver: wanted && name == ""}); err != nil {
			return err
		}
	}
	hand := routing.HandOver{
		Service: s.key.String(), Wanted: wanted, ProxyName: name, Hidden: s.hidden(), Unsliced: s.unsliced(), Groups: s.in.Groups, Written: written,
		Grace: s.grace, Memory: s.record.groups.memory,
	}
	if wanted {
		var err error
		if hand.Proxies, err = s.proxies.nodes(ctx); err != nil {
			return fmt.Errorf("reading which proxies are ready: %w", err)
		}
	}
	return s.handOver(ctx, hand.Next(s.now))
}

// hidden is the name of the first slice that kube-proxy does not see, because it has
// the label of vicinity-proxy.
func (s *groupSync) hidden() string {
	first := ""
	for _, slice := range s.in.Slices {
		if slice.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName && (first == "" || slice.Name < first) {
			first = slice.Name
		}
	}
	return first
}

// unsliced is the first address family of which Kubernetes will make a slice and has not.
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

// write takes the steps that can be taken now, and reports whether all was written.
func (s *groupSync) write(ctx context.Context, state routing.GroupState) (done bool, err error) {
	for range maxGroupSteps {
		changes := routing.Groups(s.in, s.d, state)
		if err := s.apply(ctx, changes); err != nil {
			return false, err
		}
		if !changes.Again {
			s.come(changes.After)
			s.progress.notes = append(s.progress.notes, changes.Notes...)
			return true, nil
		}
	}
	s.come(time.Millisecond)
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
	err := s.client.Delete(ctx, group, client.Preconditions{UID: &group.UID, ResourceVersion: &group.ResourceVersion})
	if err != nil {
		return s.failed(group, "deleting", err)
	}
	s.progress.writes++
	known := &s.record.groups
	known.trust.renew(s.now)
	known.deleted[group.UID] = true
	delete(known.written, group.Name)
	s.in.Groups = slices.DeleteFunc(s.in.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == group.Name })
	return nil
}

// wrote notes a group as it is now.
func (s *groupSync) wrote(group *v1alpha1.EndpointGroup) {
	s.progress.writes++
	s.record.groups.trust.renew(s.now)
	s.record.groups.written[group.Name] = group
	i := slices.IndexFunc(s.in.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == group.Name })
	if i >= 0 {
		s.in.Groups[i] = group
	} else {
		s.in.Groups = append(s.in.Groups, group)
	}
}

// failed says what to make of a write that did not succeed. What was known of the
// group is not true then.
func (s *groupSync) failed(group *v1alpha1.EndpointGroup, doing string, err error) error {
	delete(s.record.groups.written, group.Name)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	return fmt.Errorf("%s group %s of %s: %w", doing, group.Name, s.key, err)
}

// removeAll deletes all groups.
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
