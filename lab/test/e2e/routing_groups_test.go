package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
)

// zoneViews are the EndpointGroups of a namespace as the proxies of each zone see them
// at every instant: each zone has a watch of its own, by the selector of its proxies.
type zoneViews struct {
	mu       sync.Mutex
	groups   map[string]map[string]*v1alpha1.EndpointGroup // by zone and name
	armed    map[string]bool                               // zones that had an endpoint
	deprived []string                                      // what zones lost without anything in its place
	watching sync.WaitGroup
	stop     context.CancelFunc
}

// watchGroups begins to watch from all zones.
func (s *scene) watchGroups(ctx context.Context) (*zoneViews, error) {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	groups := client.Resource(v1alpha1.GroupVersion.WithResource("endpointgroups")).Namespace(s.namespace)
	ctx, stop := context.WithCancel(ctx)
	v := &zoneViews{groups: map[string]map[string]*v1alpha1.EndpointGroup{}, armed: map[string]bool{}, stop: stop}
	for _, zone := range s.inhabited() {
		v.groups[zone.Name] = map[string]*v1alpha1.EndpointGroup{}
		w, err := groups.Watch(ctx, metav1.ListOptions{LabelSelector: "!" + v1alpha1.LabelNotForPrefix + zone.Name})
		if err != nil {
			v.end()
			return nil, fmt.Errorf("watching the groups of %s: %w", zone.Name, err)
		}
		v.watching.Go(func() {
			for event := range w.ResultChan() {
				v.take(zone.Name, event)
			}
		})
	}
	return v, nil
}

func (v *zoneViews) end() {
	v.stop()
	v.watching.Wait()
}

// take takes in what a zone sees, and judges what it can use then.
func (v *zoneViews) take(zone string, event watch.Event) {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	group := &v1alpha1.EndpointGroup{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, group); err != nil {
		v.deprived = append(v.deprived, err.Error())
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if event.Type == watch.Deleted {
		delete(v.groups[zone], group.Name)
	} else {
		v.groups[zone][group.Name] = group
	}
	usable := len(v.usable(zone))
	if usable == 0 && v.armed[zone] {
		v.deprived = append(v.deprived, fmt.Sprintf("%s has no endpoint after %s of group %s", zone, event.Type, group.Name))
	}
	v.armed[zone] = v.armed[zone] || usable > 0
}

// usable are the ready IPv4 endpoints that nodes of a zone use, with their home zones.
func (v *zoneViews) usable(zone string) map[string]string {
	endpoints := map[string]string{}
	for _, group := range v.groups[zone] {
		named := slices.ContainsFunc(group.Spec.Consumers, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone })
		home := slices.ContainsFunc(group.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return e.Zone == zone })
		if group.Spec.AddressType != "IPv4" || group.Spec.LocalOnly && !named && home {
			continue
		}
		for _, endpoint := range group.Spec.Endpoints {
			if !endpoint.NotReady {
				endpoints[endpoint.Address] = endpoint.Zone
			}
		}
	}
	return endpoints
}

// uses waits until each zone uses endpoints as wanted.
func (v *zoneViews) uses(ctx context.Context, what string, right func(zone string, homes map[string]string) bool) error {
	return kube.Wait(ctx, "zones to use "+what, func(context.Context) (string, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		if len(v.deprived) > 0 {
			return fmt.Sprint(v.deprived), nil
		}
		for _, zone := range slices.Sorted(maps.Keys(v.groups)) {
			if usable := v.usable(zone); !right(zone, usable) {
				return fmt.Sprintf("%s uses %v", zone, usable), nil
			}
		}
		return "", nil
	})
}

// groups has a Service delivered by groups switched from one intent to another while
// each zone watches: no zone is ever without an endpoint.
func groups(ctx context.Context, s *scene) (string, error) {
	if err := s.route(ctx, 12, balancedZone); err != nil {
		return "", err
	}
	v, err := s.watchGroups(ctx)
	if err != nil {
		return "", err
	}
	defer v.end()
	near := func(zone string, homes map[string]string) bool {
		for _, home := range homes {
			if home != zone {
				return false
			}
		}
		return len(homes) > 0
	}
	all := func(_ string, homes map[string]string) bool { return len(homes) == 12 }
	annotate := func(sameZone, keys string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"vicinity.dev/proxy":"true","endpointslice.kubernetes.io/same-zone":%s,"vicinity.dev/topology-keys":%s}}}`, sameZone, keys)
	}
	steps := []struct {
		what, patch string
		right       func(string, map[string]string) bool
	}{
		{"all endpoints", annotate("null", "null"), all},
		{"their own, required", annotate(`"Require"`, "null"), near},
		{"their own, preferred", annotate(`"Prefer"`, "null"), near},
		{"all endpoints again", annotate(`"Balanced"`, "null"), all},
		{"their own, by keys", annotate("null", `"topology.kubernetes.io/zone,*"`), near},
		{"their own, by hard keys", annotate("null", `"topology.kubernetes.io/zone"`), near},
		{"all endpoints at last", annotate("null", "null"), all},
	}
	for _, step := range steps {
		if err := s.PatchService(ctx, s.namespace, "echo", step.patch); err != nil {
			return "", err
		}
		if err := v.uses(ctx, step.what, step.right); err != nil {
			return "", err
		}
	}
	v.end()
	if len(v.deprived) > 0 {
		return "", errors.New(fmt.Sprint(v.deprived))
	}
	return fmt.Sprintf("%d switches seen from %d zones, none without an endpoint at any instant", len(steps)-1, len(v.groups)), nil
}
