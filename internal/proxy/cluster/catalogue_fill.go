package cluster

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Fill runs a change, and calls notice before the change can be taken: a later notice would look like work that is never
// done.
func (c *Catalogue) Fill(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	if !c.changes.Empty() {
		c.notice()
	}
}

// TouchService marks a Service as changed.
func (c *Catalogue) TouchService(service types.NamespacedName) {
	c.Fill(func() { c.touch(service) })
}

// TouchNode marks the own node as changed.
func (c *Catalogue) TouchNode() {
	c.Fill(func() { c.changes.Node = true })
}

// touch marks a Service as changed.
func (c *Catalogue) touch(service types.NamespacedName) *Change {
	if service.Name == "" {
		return &Change{} // the object has no Service
	}
	made := c.changes.Services[service]
	if made == nil {
		made = &Change{Noticed: c.clock.Now()}
		c.changes.Services[service] = made
	}
	return made
}

// recordVersion records the resource version of a list, and reports whether it is lower than the last: after a restore
// of the cluster, versions start over.
func (c *Catalogue) recordVersion(resource, version string) bool {
	listed := numberOf(version)
	back := listed < c.listed[resource]
	c.listed[resource] = listed
	return back
}

// numberOf returns a resource version as a number, 0 for none.
func numberOf(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// SetService stores a new or changed Service.
func (c *Catalogue) SetService(service *corev1.Service) {
	key := KeyOf(service)
	if before := c.services[key]; before != nil && before.ResourceVersion == service.ResourceVersion {
		return
	}
	c.services[key] = service
	c.touch(key)
}

// RemoveService removes a Service.
func (c *Catalogue) RemoveService(key types.NamespacedName) {
	if _, found := c.services[key]; found {
		delete(c.services, key)
		c.touch(key)
	}
}

func (c *Catalogue) replaceServices(list []*corev1.Service, version string) {
	removeMissing(c.services, list, c.recordVersion(ResourceServices, version), func(service *corev1.Service) { c.RemoveService(KeyOf(service)) })
	for _, service := range list {
		c.SetService(service)
	}
}

// removeMissing removes the objects that are not in a list, or all objects.
func removeMissing[T metav1.Object](known map[types.NamespacedName]T, list []T, all bool, remove func(T)) {
	kept := make(map[types.NamespacedName]bool, len(list))
	for _, object := range list {
		kept[KeyOf(object)] = !all
	}
	for key, object := range known {
		if !kept[key] {
			remove(object)
		}
	}
}

// SetGroup stores a new or changed group.
func (c *Catalogue) SetGroup(group *v1alpha1.EndpointGroup) {
	if before, found := c.groups.all[KeyOf(group)]; found && before.ResourceVersion == group.ResourceVersion {
		return
	}
	before, found := c.groups.set(group)
	if found {
		c.touch(c.groups.owner(before))
	}
	made := c.touch(c.groups.owner(group))
	c.acknowledge(made, group)
	const key = corev1.EndpointsLastChangeTriggerTime
	if !found || before.Annotations[key] != group.Annotations[key] {
		made.trigger(group.Annotations)
	}
}

// RemoveGroup removes a group. Its resource version is that of the deletion.
func (c *Catalogue) RemoveGroup(group *v1alpha1.EndpointGroup) {
	if before, found := c.groups.remove(KeyOf(group)); found {
		c.acknowledge(c.touch(c.groups.owner(before)), group)
	}
}

// acknowledge requests the acknowledgement of a group's version, if the group is in hand-over.
func (c *Catalogue) acknowledge(made *Change, group *v1alpha1.EndpointGroup) {
	if _, asked := group.Labels[v1alpha1.LabelHandOver]; !asked {
		return
	}
	if version := numberOf(group.ResourceVersion); version > 0 {
		made.HandOver = append(made.HandOver, version)
	}
}

// ReplaceGroups replaces all groups by the list for a zone.
func (c *Catalogue) ReplaceGroups(list []*v1alpha1.EndpointGroup, version, zone string) {
	reset := c.recordVersion(ResourceGroups, version)
	before := c.zone
	if zone != before {
		c.zone, c.changes.Node, reset = zone, true, true
	}
	removeMissing(c.groups.all, list, reset, c.RemoveGroup)
	if reset {
		// The requested acknowledgements are void.
		c.changes.VersionsReset = true
		for _, made := range c.changes.Services {
			made.HandOver = nil
		}
	}
	for _, group := range list {
		c.SetGroup(group)
	}
	if zone != before {
		// Groups that are new for this node may be old, so their trigger times would distort the latency.
		for _, made := range c.changes.Services {
			made.Triggered = nil
		}
	}
}

// SetSlice stores a new or changed slice.
func (c *Catalogue) SetSlice(slice *discoveryv1.EndpointSlice) {
	if before, found := c.slices.all[KeyOf(slice)]; found && before.ResourceVersion == slice.ResourceVersion {
		return
	}
	if before, found := c.slices.set(slice); found {
		c.touch(c.slices.owner(before))
	}
	c.touch(c.slices.owner(slice)).trigger(slice.Annotations)
}

// trigger adds the trigger time in annotations, if any.
func (c *Change) trigger(annotations map[string]string) {
	at, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err == nil && !slices.ContainsFunc(c.Triggered, at.Equal) {
		c.Triggered = earliest(append(c.Triggered, at))
	}
}

// RemoveSlice removes a slice.
func (c *Catalogue) RemoveSlice(key types.NamespacedName) {
	if before, found := c.slices.remove(key); found {
		c.touch(c.slices.owner(before))
	}
}

func (c *Catalogue) replaceSlices(list []*discoveryv1.EndpointSlice, version string) {
	reset := c.recordVersion(ResourceSlices, version)
	removeMissing(c.slices.all, list, reset, func(slice *discoveryv1.EndpointSlice) { c.RemoveSlice(KeyOf(slice)) })
	for _, slice := range list {
		c.SetSlice(slice)
	}
}

// SetNode sets the own node, nil if it is deleted. Then the last one still counts.
func (c *Catalogue) SetNode(node *corev1.Node) {
	if node != nil {
		c.node = node
	}
	c.changes.Node = true
}
