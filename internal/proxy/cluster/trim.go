package cluster

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

var (
	keptServiceLabels = []string{v1alpha1.LabelServiceProxyName}
	keptSliceLabels   = []string{discoveryv1.LabelServiceName, corev1.IsHeadlessService}
)

// Trimmer removes unneeded parts of objects, and shares equal strings and labels: a node has all Services, and all
// endpoints of its zone. Any goroutine may use it.
type Trimmer struct {
	mu       sync.Mutex
	strings  map[string]*string
	labelled map[string]map[string]string
}

// meta keeps the identity of an object, and some labels.
func (t *Trimmer) meta(meta *metav1.ObjectMeta, labels []string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: t.text(meta.Namespace), Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		CreationTimestamp: meta.CreationTimestamp, DeletionTimestamp: meta.DeletionTimestamp, Labels: t.labels(meta.Labels, labels),
	}
}

// someSelector stands for any selector that selects something.
var someSelector = map[string]string{"": ""}

// Service keeps the parts that rules depend on. It replaces a selector by someSelector.
func (t *Trimmer) Service(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Service{ObjectMeta: t.meta(&service.ObjectMeta, keptServiceLabels), Spec: service.Spec}
	trimmed.Spec.Selector = nil
	if len(service.Spec.Selector) > 0 {
		trimmed.Spec.Selector = someSelector
	}
	trimmed.Status.LoadBalancer = service.Status.LoadBalancer
	return trimmed, nil
}

// Slice keeps the parts of a slice that rules depend on. Equal zones, nodes and conditions are stored once.
func (t *Trimmer) Slice(object any) (any, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil
	}
	trimmed := &discoveryv1.EndpointSlice{
		ObjectMeta:  t.meta(&slice.ObjectMeta, nil),
		AddressType: slice.AddressType, Ports: slice.Ports, Endpoints: make([]discoveryv1.Endpoint, len(slice.Endpoints)),
	}
	trimmed.Labels = selectKeys(slice.Labels, keptSliceLabels...)
	trimmed.Annotations = selectKeys(slice.Annotations, corev1.EndpointsLastChangeTriggerTime)
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		trimmed.Endpoints[i] = discoveryv1.Endpoint{
			Addresses: e.Addresses, NodeName: t.pointer(e.NodeName), Zone: t.pointer(e.Zone), Hints: e.Hints,
			Conditions: discoveryv1.EndpointConditions{
				Ready: sharedBool(e.Conditions.Ready), Serving: sharedBool(e.Conditions.Serving), Terminating: sharedBool(e.Conditions.Terminating),
			},
		}
	}
	return trimmed, nil
}

// Group keeps the parts of a group that rules depend on.
func (t *Trimmer) Group(object any) (any, error) {
	group, ok := object.(*v1alpha1.EndpointGroup)
	if !ok {
		return object, nil
	}
	kept := make([]string, 0, len(group.Labels))
	for label := range group.Labels {
		if label == v1alpha1.LabelHandOver || strings.HasPrefix(label, v1alpha1.LabelNotForPrefix) {
			kept = append(kept, label)
		}
	}
	slices.Sort(kept)
	trimmed := &v1alpha1.EndpointGroup{ObjectMeta: t.meta(&group.ObjectMeta, kept), Spec: group.Spec}
	trimmed.Annotations = selectKeys(group.Annotations, corev1.EndpointsLastChangeTriggerTime)
	spec := &trimmed.Spec
	spec.Tiers = slices.Clone(spec.Tiers)
	for i := range spec.Tiers {
		spec.Tiers[i] = t.text(spec.Tiers[i])
	}
	spec.Ports = slices.Clone(spec.Ports)
	for i := range spec.Ports {
		spec.Ports[i].Name = t.text(spec.Ports[i].Name)
		spec.Ports[i].Protocol = corev1.Protocol(t.text(string(spec.Ports[i].Protocol)))
	}
	spec.Consumers = slices.Clone(spec.Consumers)
	for i := range spec.Consumers {
		spec.Consumers[i].Zone = t.text(spec.Consumers[i].Zone)
	}
	spec.Endpoints = slices.Clone(spec.Endpoints)
	for i := range spec.Endpoints {
		e := &spec.Endpoints[i]
		e.Zone, e.Node = t.text(e.Zone), t.text(e.Node)
	}
	return trimmed, nil
}

// Node keeps the identity, location, addresses and taints of the own node.
func (*Trimmer) Node(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels, DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec:   corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs, Taints: node.Spec.Taints},
		Status: corev1.NodeStatus{Addresses: node.Status.Addresses},
	}, nil
}

var sharedTrue, sharedFalse = true, false

func sharedBool(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &sharedTrue
	}
	return &sharedFalse
}

// poolSize bounds the shared strings and labels. Then a new pool begins, because nodes come and go.
const poolSize = 20000

// pointer returns a pointer to the shared copy of a text.
func (t *Trimmer) pointer(text *string) *string {
	if text == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept := t.strings[*text]; kept != nil {
		return kept
	}
	if len(t.strings) >= poolSize || t.strings == nil {
		t.strings = map[string]*string{}
	}
	kept := strings.Clone(*text)
	t.strings[kept] = &kept
	return &kept
}

func (t *Trimmer) text(text string) string {
	if text == "" {
		return ""
	}
	return *t.pointer(&text)
}

// labels returns the labels with some keys, in a map that objects with equal labels share.
func (t *Trimmer) labels(all map[string]string, keys []string) map[string]string {
	kept := selectKeys(all, keys...)
	if kept == nil {
		return nil
	}
	var sum strings.Builder
	for _, key := range keys {
		if value, found := kept[key]; found {
			sum.WriteString(key + "=" + value + ",")
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.labelled[sum.String()]; known != nil {
		return known
	}
	if len(t.labelled) >= poolSize || t.labelled == nil {
		t.labelled = map[string]map[string]string{}
	}
	t.labelled[sum.String()] = kept
	return kept
}

// selectKeys returns the labels or annotations with some keys, nil without any.
func selectKeys(all map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if value, found := all[key]; found {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[strings.Clone(key)] = strings.Clone(value)
		}
	}
	return kept
}
