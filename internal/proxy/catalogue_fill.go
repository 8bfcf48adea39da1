package proxy

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

// fill does what a watch says, and tells about it before anybody can take it: to hear of
// work that is done already would look as if it were never done.
func (c *catalogue) fill(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	if !c.changes.empty() {
		c.notice()
	}
}

// touch notes that a Service has changed.
func (c *catalogue) touch(service types.NamespacedName) *change {
	if service.Name == "" {
		return &change{} // of nobody
	}
	made := c.changes.services[service]
	if made == nil {
		made = &change{noticed: c.clock.Now()}
		c.changes.services[service] = made
	}
	return made
}

// restored notes the resource version of a list, and reports whether it is before that of
// the last one: a cluster that was restored counts from before again, and a version says
// something else than it did.
func (c *catalogue) restored(resource, version string) bool {
	listed := numberOf(version)
	back := listed < c.listed[resource]
	c.listed[resource] = listed
	return back
}

// versionOf is the resource version of an object as a number, 0 if it is none, which the
// API does not give out.
func versionOf(object metav1.Object) uint64 { return numberOf(object.GetResourceVersion()) }

func numberOf(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (c *catalogue) setService(service *corev1.Service) {
	key := keyOf(service)
	if before := c.services[key]; before != nil && before.ResourceVersion == service.ResourceVersion {
		return
	}
	c.services[key] = service
	c.touch(key)
}

func (c *catalogue) removeService(key types.NamespacedName) {
	if _, found := c.services[key]; found {
		delete(c.services, key)
		c.touch(key)
	}
}

func (c *catalogue) replaceServices(list []*corev1.Service, version string) {
	before := c.services
	if c.restored(resourceServices, version) {
		c.services = make(map[types.NamespacedName]*corev1.Service, len(list))
	}
	kept := make(map[types.NamespacedName]bool, len(list))
	for _, service := range list {
		kept[keyOf(service)] = true
		c.setService(service)
	}
	for key := range before {
		if !kept[key] {
			delete(c.services, key)
			c.touch(key)
		}
	}
}

func (c *catalogue) setGroup(group *v1alpha1.EndpointGroup) {
	if before, found := c.groups.all[keyOf(group)]; found && before.ResourceVersion == group.ResourceVersion {
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

// removeGroup takes out a group. The object is the group as it was when it was deleted, as
// far as that is known.
func (c *catalogue) removeGroup(group *v1alpha1.EndpointGroup) {
	if before, found := c.groups.remove(keyOf(group)); found {
		c.acknowledge(c.touch(c.groups.owner(before)), group)
	}
}

// acknowledge has a state of a group acknowledged once it is programmed, if proxies do so.
func (c *catalogue) acknowledge(made *change, group *v1alpha1.EndpointGroup) {
	if _, asked := group.Labels[v1alpha1.LabelHandOver]; !asked {
		return
	}
	if version := versionOf(group); version > 0 {
		made.handOver = append(made.handOver, version)
	}
}

// replaceGroups puts a list into the place of all groups: those that the nodes of a zone
// see.
func (c *catalogue) replaceGroups(list []*v1alpha1.EndpointGroup, version, zone string) {
	anew := c.restored(resourceGroups, version)
	before := c.zone
	if zone != before {
		c.zone, c.changes.node, anew = zone, true, true
	}
	kept := make(map[types.NamespacedName]bool, len(list))
	for _, group := range list {
		kept[keyOf(group)] = true
	}
	for key, group := range c.groups.all {
		if !kept[key] || anew {
			c.removeGroup(group)
		}
	}
	if anew {
		// What was to be acknowledged says nothing any more.
		c.changes.anew = true
		for _, made := range c.changes.services {
			made.handOver = nil
		}
	}
	for _, group := range list {
		c.setGroup(group)
	}
	if zone != before {
		// What is new here need not be so elsewhere.
		for _, made := range c.changes.services {
			made.triggered = nil
		}
	}
}

func (c *catalogue) setSlice(slice *discoveryv1.EndpointSlice) {
	if before, found := c.slices.all[keyOf(slice)]; found && before.ResourceVersion == slice.ResourceVersion {
		return
	}
	if before, found := c.slices.set(slice); found {
		c.touch(c.slices.owner(before))
	}
	c.touch(c.slices.owner(slice)).trigger(slice.Annotations)
}

// trigger notes when a change of endpoints happened, if annotations say so.
func (c *change) trigger(annotations map[string]string) {
	at, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err == nil && !slices.ContainsFunc(c.triggered, at.Equal) {
		c.triggered = earliest(append(c.triggered, at))
	}
}

func (c *catalogue) removeSlice(key types.NamespacedName) {
	if before, found := c.slices.remove(key); found {
		c.touch(c.slices.owner(before))
	}
}

func (c *catalogue) replaceSlices(list []*discoveryv1.EndpointSlice, version string) {
	anew := c.restored(resourceSlices, version)
	kept := make(map[types.NamespacedName]bool, len(list))
	for _, slice := range list {
		kept[keyOf(slice)] = true
	}
	for key := range c.slices.all {
		if !kept[key] || anew {
			c.removeSlice(key)
		}
	}
	for _, slice := range list {
		c.setSlice(slice)
	}
}

// setNode notes what the API says of the own node, nil if it is gone. What was known of it
// goes on to count then, since rules do.
func (c *catalogue) setNode(node *corev1.Node) {
	if node != nil {
		c.node = node
	}
	c.changes.node = true
}
