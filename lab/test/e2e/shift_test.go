package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/test/kube"
)

// shiftArea covers zones that are taken out of service, and back.
func shiftArea() area {
	return area{
		name:  "shift",
		setup: zones,
		promises: []promise{
			{name: "hints", keep: shiftByHints, within: 4 * time.Minute, tier: inTest},
			{name: "ramp", keep: shiftByRamp, within: 4 * time.Minute, tier: inTest},
			{name: "names", keep: shiftOfNames, within: 3 * time.Minute},
			{name: "yields", keep: shiftYields, within: 4 * time.Minute},
			{name: "kinds", keep: shiftOfKinds, within: 5 * time.Minute},
			{name: "ends", keep: shiftEnds, within: 8 * time.Minute},
			{name: "replicas", keep: shiftOfReplicas, within: 4 * time.Minute},
			{name: "game-day", keep: gameDay, within: 5 * time.Minute},
			{name: "scale", keep: shiftAtScale, within: 8 * time.Minute},
			{name: "impaired", keep: shiftImpaired, within: 5 * time.Minute},
			{name: "restored", keep: shiftRestored, within: 5 * time.Minute},
		},
	}
}

// shiftedZone is the zone that the promises take out of service.
func (s *scene) shiftedZone() string { return s.cluster.Shape().Zones[0].Name }

func (s *scene) shifts() (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource("zoneshifts")), nil
}

func (s *scene) shiftManifest(spec string) string {
	return fmt.Sprintf(`apiVersion: vicinity.dev/v1alpha1
kind: ZoneShift
metadata: {name: %s}
spec:
  from: {value: %s}
  reason: a promise
  services: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}
%s`, s.namespace, s.shiftedZone(), s.namespace, spec)
}

// shift takes the first zone out of service for the scene's namespace, and waits until that is stored.
func (s *scene) shift(ctx context.Context, spec string) (stored time.Duration, err error) {
	begun := time.Now()
	if err := s.Apply(ctx, "", s.shiftManifest(spec)); err != nil {
		return 0, err
	}
	_, err = s.waitShift(ctx, "Stored")
	return time.Since(begun), err
}

// waitShift waits until the condition InForce has a reason.
func (s *scene) waitShift(ctx context.Context, reason string) (zs *v1alpha1.ZoneShift, err error) {
	return zs, kube.Wait(ctx, "the shift to be "+reason, func(ctx context.Context) (string, error) {
		if zs, err = s.currentShift(ctx); err != nil {
			return "", err
		}
		c := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.ConditionInForce)
		if c == nil || c.Reason != reason {
			return fmt.Sprintf("its conditions are %+v", zs.Status.Conditions), nil
		}
		return "", nil
	})
}

func (s *scene) currentShift(ctx context.Context) (*v1alpha1.ZoneShift, error) {
	shifts, err := s.shifts()
	if err != nil {
		return nil, err
	}
	object, err := shifts.Get(ctx, s.namespace, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	zs := new(v1alpha1.ZoneShift)
	return zs, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, zs)
}

// unshift deletes the shift. It is the way back, also of a promise that failed.
func (s *scene) unshift(ctx context.Context) error {
	shifts, err := s.shifts()
	if err != nil {
		return err
	}
	if err := shifts.Delete(context.WithoutCancel(ctx), s.namespace, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// routed returns the Services, slices and groups of the scene as far as a shift may change them.
func (s *scene) routed(ctx context.Context) (map[string]string, error) {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	objects := map[string]string{}
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("services"), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), v1alpha1.GroupVersion.WithResource("endpointgroups"),
	} {
		list, err := client.Resource(resource).Namespace(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			object := &list.Items[i]
			for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", corev1.EndpointsLastChangeTriggerTime)
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", v1alpha1.AnnotationGroupMarks)
			if conditions, found, _ := unstructured.NestedSlice(object.Object, "status", "conditions"); found {
				for _, condition := range conditions {
					delete(condition.(map[string]any), "lastTransitionTime")
				}
				if err := unstructured.SetNestedSlice(object.Object, conditions, "status", "conditions"); err != nil {
					return nil, err
				}
			}
			if len(object.GetAnnotations()) == 0 {
				object.SetAnnotations(nil)
			}
			// Groups may be divided in another way; their endpoints must have the same consumers.
			if endpoints, _, _ := unstructured.NestedSlice(object.Object, "spec", "endpoints"); object.GetKind() == "EndpointGroup" {
				for _, endpoint := range endpoints {
					address, _, _ := unstructured.NestedString(endpoint.(map[string]any), "address")
					spec := maps.Clone(object.Object["spec"].(map[string]any))
					spec["endpoints"] = endpoint
					if objects["endpoint "+address], err = inJSON(spec); err != nil {
						return nil, err
					}
				}
				continue
			}
			if objects[resource.Resource+" "+object.GetName()], err = inJSON(object.Object); err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

// routedAtRest returns the objects once they no longer change.
func (s *scene) routedAtRest(ctx context.Context) (objects map[string]string, err error) {
	return objects, kube.Wait(ctx, "Services, slices and groups to be at rest", func(ctx context.Context) (string, error) {
		before, err := s.routed(ctx)
		if err != nil {
			return "", err
		}
		if err := pause(ctx, 2*time.Second); err != nil {
			return "", err
		}
		if objects, err = s.routed(ctx); err != nil || maps.Equal(before, objects) {
			return "", err
		}
		return "they change", nil
	})
}

func inJSON(object any) (string, error) {
	text, err := json.Marshal(object)
	return string(text), err
}

// waitAsBefore waits until the objects of the scene are as they were.
func (s *scene) waitAsBefore(ctx context.Context, before map[string]string) (took time.Duration, err error) {
	begun := time.Now()
	err = kube.Wait(ctx, "all objects to be as before the shift", func(ctx context.Context) (string, error) {
		now, err := s.routed(ctx)
		if err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if now[name] != before[name] {
				return fmt.Sprintf("%s is\n%s\nand was\n%s", name, now[name], before[name]), nil
			}
		}
		if len(now) > len(before) {
			return fmt.Sprintf("there are %d objects, and were %d", len(now), len(before)), nil
		}
		return "", nil
	})
	return time.Since(begun), err
}

// waitOut waits until no answer comes from the shifted zone, while clients of every zone get answers.
func (s *scene) waitOut(ctx context.Context, service string) error {
	return kube.Wait(ctx, "no traffic of "+service+" to end in "+s.shiftedZone(), func(ctx context.Context) (string, error) {
		job, err := s.planLoadOf(ctx, service, load.Plan{Rate: 600, Duration: time.Second})
		if err != nil {
			return "", err
		}
		result, err := job.Run(ctx, load.Watch{})
		if err != nil {
			return "", err
		}
		answered := map[string]bool{}
		for _, flow := range result.Flows {
			if answered[flow.Zone] = true; flow.To.Zone == s.shiftedZone() {
				return fmt.Sprintf("%s of %s answers %s", flow.To.Pod, flow.To.Zone, flow.Zone), nil
			}
		}
		if len(answered) != len(s.cluster.Shape().Zones) {
			return fmt.Sprintf("clients of %v get answers", answered), nil
		}
		return failures(result), nil
	})
}

// shiftByHints takes a zone out for a Service of kube-proxy that asks for nothing, under load.
func shiftByHints(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deploy(ctx))
	check(s.waitAllUsed(ctx, echoes))
	before := must(s.routedAtRest(ctx))
	defer undo(&err, func() error { return s.unshift(ctx) })
	var stored, out, back time.Duration
	result := must(s.during(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 300}}, func(ctx context.Context) (err error) {
		begun := time.Now()
		if stored, err = s.shift(ctx, "  for: 1h\n"); err != nil {
			return err
		}
		if err = s.waitOut(ctx, "echo"); err != nil {
			return err
		}
		out, begun = time.Since(begun), time.Now()
		if err = s.unshift(ctx); err != nil {
			return err
		}
		if err = s.waitAllUsed(ctx, echoes); err != nil {
			return err
		}
		back = time.Since(begun)
		_, err = s.waitAsBefore(ctx, before)
		return err
	}))
	return fmt.Sprintf("hints stored after %.1f s, no traffic to the zone after %.1f s, all back %.1f s after the deletion, objects as before; %d connections, 0 failed",
		stored.Seconds(), out.Seconds(), back.Seconds(), result.Answered), nil
}

// shiftByRamp measures the share of a zone while a Service of vicinity-proxy leaves it step by step.
func shiftByRamp(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deployed(ctx, echoes, ""))
	check(s.waitAllUsed(ctx, echoes))
	before := must(s.routedAtRest(ctx))
	defer undo(&err, func() error { return s.unshift(ctx) })
	const ramp = 60 * time.Second
	var measured []string
	farthest := 0.0
	result := must(s.during(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200}}, func(ctx context.Context) error {
		if _, err := s.shift(ctx, fmt.Sprintf("  for: 1h\n  ramp: %s\n", ramp)); err != nil {
			return err
		}
		zs, err := s.currentShift(ctx)
		if err != nil {
			return err
		}
		begun := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted).LastTransitionTime.Time
		for _, step := range []int{3, 6, 10} {
			// Groups have the step a moment after it begins; the middle of the step is measured.
			wait := time.Until(begun.Add(ramp/10*time.Duration(step) + 3*time.Second))
			if err := pause(ctx, wait); err != nil {
				return err
			}
			sample, err := s.flawless(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 2000, Duration: 2 * time.Second}})
			if err != nil {
				return err
			}
			inside, all := 0.0, 0.0
			for _, flow := range sample.Flows {
				if all += float64(flow.Answers); flow.To.Zone == s.shiftedZone() {
					inside += float64(flow.Answers)
				}
			}
			weight := 1 - float64(step)/10
			want := 2 * weight / (2*weight + 4)
			farthest = max(farthest, points(inside/all, want))
			measured = append(measured, fmt.Sprintf("%.1f %% (%.1f %%)", 100*inside/all, 100*want))
		}
		if err := s.unshift(ctx); err != nil {
			return err
		}
		return s.waitAllUsed(ctx, echoes)
	}))
	if farthest > 3 {
		return "", fmt.Errorf("shares measured (and wanted): %s; want at most 3 points", strings.Join(measured, ", "))
	}
	took := must(s.waitAsBefore(ctx, before))
	return fmt.Sprintf("shares after 30, 60 and 100 %% of the ramp, and as planned: %s; as before %.0f s after the deletion; %d connections, 0 failed",
		strings.Join(measured, ", "), took.Seconds(), result.Answered), nil
}

func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shiftOfNames takes a zone out for a headless Service that asks for nothing.
func shiftOfNames(ctx context.Context, s *scene) (figure string, err error) {
	var nodes []string
	for _, node := range s.cluster.Shape().Nodes() {
		nodes = append(nodes, node.Name)
	}
	check(s.namedPods(ctx, headlessOf("all"), nodes...))
	var inside, outside []string
	for i, node := range s.cluster.Shape().Nodes() {
		name := fmt.Sprintf("echo-%s-%d", node.Name, i)
		if node.Zone == s.shiftedZone() {
			inside = append(inside, name)
		} else {
			outside = append(outside, name)
		}
	}
	before := must(s.routedAtRest(ctx))
	defer undo(&err, func() error { return s.unshift(ctx) })
	var all []asked
	for _, from := range must(s.fromClients(ctx)) {
		all = append(all, asked{from: from, Query: dnsquery.Query{Name: s.fqdn("all")}})
	}
	asking := func(want []string) []asked {
		list := slices.Clone(all)
		slices.Sort(want)
		for i := range list {
			list[i].want = strings.Join(want, " ")
		}
		return list
	}
	must(s.answers(ctx, asking(slices.Concat(inside, outside))))
	begun := time.Now()
	must(s.shift(ctx, "  for: 1h\n"))
	took := must(s.follow(ctx, begun, asking(outside)...))
	check(s.unshift(ctx))
	back := must(s.follow(ctx, time.Now(), asking(slices.Concat(inside, outside))...))
	must(s.waitAsBefore(ctx, before))
	return fmt.Sprintf("%d of %d pods leave the name after %.1f s, and are back %.1f s after the deletion", len(inside), len(nodes), took.Seconds(), back.Seconds()), nil
}

// shiftYields removes endpoints outside one by one, until those left cannot hold the bound.
func shiftYields(ctx context.Context, s *scene) (figure string, err error) {
	var nodes []string
	for _, node := range s.cluster.Shape().Nodes() {
		nodes = append(nodes, node.Name)
	}
	check(s.place(ctx, nodes...))
	check(s.waitAllUsed(ctx, len(nodes)))
	defer undo(&err, func() error { return s.unshift(ctx) })
	must(s.shift(ctx, "  for: 1h\n  maxOverload: 100\n"))
	check(s.waitOut(ctx, "echo"))
	// Two endpoints are inside. Two outside hold the bound of 100 %, one does not.
	left := len(nodes)
	for i, node := range slices.Backward(nodes) {
		if left == 3 {
			break
		}
		check(s.removePod(ctx, fmt.Sprintf("echo-%s-%d", node, i)))
		if left--; left > 3 {
			check(s.waitOut(ctx, "echo"))
		}
	}
	begun := time.Now()
	check(s.waitAllUsed(ctx, left))
	took := time.Since(begun)
	result := must(s.flawless(ctx, lab.LoadOptions{Plan: heavyPlan()}))
	loads := map[string]float64{}
	for _, flow := range result.Flows {
		loads[flow.To.Pod] += float64(flow.Answers) / float64(result.Answered) * float64(left)
	}
	highest := slices.Max(slices.Collect(maps.Values(loads)))
	if highest > 2 {
		return "", fmt.Errorf("an endpoint has %.0f %% of the even load; loads are %v", 100*highest, loads)
	}
	check(kube.Wait(ctx, "the shift to say that it yields", func(ctx context.Context) (string, error) {
		zs, err := s.currentShift(ctx)
		if err != nil {
			return "", err
		}
		if zs.Status.Yielding != 1 || !meta.IsStatusConditionTrue(zs.Status.Conditions, v1alpha1.ConditionYielding) {
			return fmt.Sprintf("its status is %+v", zs.Status), nil
		}
		return "", nil
	}))
	return fmt.Sprintf("with 1 of 4 endpoints outside the zone left, both inside are back after %.1f s; the highest load is %.0f %% of the even share", took.Seconds(), 100*highest), nil
}

// shiftOfKinds takes a zone out for Services that ask for different things, or cannot leave it.
func shiftOfKinds(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deploy(ctx))
	service := func(name, metadata, spec string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s%s}\nspec:\n  selector: {app: echo}\n  ports:\n  - {name: http, port: 80, targetPort: http}\n%s", name, metadata, spec)
	}
	moving := map[string]string{
		"distribution": service("distribution", "", "  trafficDistribution: PreferSameZone\n"),
		"auto":         service("auto", ", annotations: {service.kubernetes.io/topology-mode: Auto}", ""),
		"gardener":     service("gardener", ", labels: {endpoint-slice-hints.resources.gardener.cloud/consider: \"true\"}", ""),
		"node":         service("node", ", annotations: {endpointslice.kubernetes.io/same-node: Prefer}", ""),
		"zone":         service("zone", ", annotations: {endpointslice.kubernetes.io/same-zone: Prefer}", ""),
		"required":     service("required", ", annotations: {endpointslice.kubernetes.io/same-zone: Require}", ""),
		"external":     service("external", "", "  type: NodePort\n  externalTrafficPolicy: Local\n"),
	}
	text := service("internal", "", "  internalTrafficPolicy: Local\n")
	names := slices.Sorted(maps.Keys(moving))
	for _, name := range names {
		text += moving[name]
	}
	check(s.Apply(ctx, s.namespace, text))
	for _, name := range names {
		check(s.WaitEndpoints(ctx, s.namespace, name, echoes))
	}
	before := must(s.routedAtRest(ctx))
	defer undo(&err, func() error { return s.unshift(ctx) })
	stored := must(s.shift(ctx, "  for: 1h\n"))
	for _, name := range append(names, "echo") {
		check(s.waitOut(ctx, name))
	}
	zs := must(s.currentShift(ctx))
	reasons := map[string]string{}
	for _, stays := range zs.Status.Stays {
		reasons[stays.Name] = stays.Reason
	}
	if zs.Status.Services != int32(len(moving)+1) || zs.Status.Staying != 2 || len(reasons) != 2 ||
		!strings.HasPrefix(reasons["internal"], "internalTrafficPolicy: Local") || !strings.HasPrefix(reasons["external"], "externalTrafficPolicy: Local") {
		return "", fmt.Errorf("the status is %+v", zs.Status)
	}
	check(s.unshift(ctx))
	took := must(s.waitAsBefore(ctx, before))
	return fmt.Sprintf("%d kinds of Services leave the zone %.1f s after the command; the status says why the others stay; all objects as before %.0f s after the deletion", len(moving)+1, stored.Seconds(), took.Seconds()), nil
}

// shiftEnds lets the time of a shift run out, while the leader is killed and the API server is away.
func shiftEnds(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deploy(ctx))
	check(s.waitAllUsed(ctx, echoes))
	before := must(s.routedAtRest(ctx))
	defer undo(&err, func() error { return s.unshift(ctx) })
	restart := func() error {
		pods, err := controllers(ctx, s.Client)
		for i := range pods {
			err = errors.Join(err, s.CoreV1().Pods(vicinityNamespace).Delete(ctx, pods[i].Name, atOnce()))
		}
		return errors.Join(err, s.waitControllers(ctx), s.waitLeader(ctx))
	}
	must(s.shift(ctx, "  for: 100s\n  ramp: 0s\n"))
	during := must(s.routed(ctx))
	check(restart())
	must(s.waitShift(ctx, "Stored"))
	if after := must(s.routed(ctx)); !maps.Equal(during, after) {
		return "", fmt.Errorf("a restart changes %v to %v", during, after)
	}
	check(s.waitOut(ctx, "echo"))
	zs := must(s.currentShift(ctx))
	check(pause(ctx, time.Until(zs.CreationTimestamp.Add(95*time.Second))))
	check(s.cluster.StopComponent(ctx, "kube-apiserver"))
	check(pause(ctx, 10*time.Second))
	check(s.cluster.StartComponent(ctx, "kube-apiserver"))
	must(s.waitShift(ctx, "Ended"))
	check(s.waitAllUsed(ctx, echoes))
	took := must(s.waitAsBefore(ctx, before))
	// A shift that is deleted while no controller runs leaves nothing, either.
	check(s.unshift(ctx))
	must(s.shift(ctx, "  for: 1h\n"))
	check(s.replicas(ctx, 0))
	defer undo(&err, func() error { return s.replicas(context.WithoutCancel(ctx), 2) })
	check(s.unshift(ctx))
	check(s.replicas(ctx, 2))
	later := must(s.waitAsBefore(ctx, before))
	return fmt.Sprintf("leaders killed, and the API server away at the end: objects as before after %.0f s; deleted without a controller: after %.0f s", took.Seconds(), later.Seconds()), nil
}

// manyServices is the number of Services of shiftAtScale.
const manyServices = 1000

// shiftAtScale takes a zone out for many Services, and counts writes and the bytes that each proxy receives.
func shiftAtScale(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deploy(ctx))
	var text strings.Builder
	for i := range manyServices {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Service\nmetadata: {name: many-%d}\nspec: {selector: {app: echo}, ports: [{name: http, port: 80, targetPort: http}]}\n", i)
	}
	text.WriteString(s.manyEndpoints())
	check(s.Apply(ctx, s.namespace, text.String()))
	check(kube.Wait(ctx, "all slices to exist", func(ctx context.Context) (string, error) {
		list, err := s.DiscoveryV1().EndpointSlices(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		full := 0
		for i := range list.Items {
			if len(list.Items[i].Endpoints) == echoes {
				full++
			}
		}
		if full <= manyServices {
			return fmt.Sprintf("%d of %d have all endpoints", full, manyServices+1), nil
		}
		return "", nil
	}))
	defer undo(&err, func() error { return s.unshift(ctx) })
	watched := must(s.countWatched(ctx))
	defer watched.end()
	check(pause(ctx, 3*time.Second)) // a watch begins with all objects
	already, before := watched.received.Load(), must(s.writes(ctx))
	stored := must(s.shift(ctx, "  for: 1h\n"))
	writes, bytes := must(s.writes(ctx))-before, watched.received.Load()-already
	check(s.waitOut(ctx, fmt.Sprintf("many-%d", manyServices-1)))
	check(s.manyLeave(ctx))
	begun := time.Now()
	check(s.unshift(ctx))
	check(s.waitNoHints(ctx))
	back := time.Since(begun)
	fmt.Printf("RESULT shift services=%d seconds=%.1f writes=%.0f bytes_per_proxy=%d back_seconds=%.1f\n", manyServices+2, stored.Seconds(), writes, bytes, back.Seconds())
	return fmt.Sprintf("%d Services leave the zone: hints stored after %.1f s, %.2f writes a Service, %.1f kB to each proxy a Service; all back after %.1f s",
		manyServices+2, stored.Seconds(), writes/(manyServices+2), float64(bytes)/1000/(manyServices+2), back.Seconds()), nil
}

// manyEndpoints returns a Service with 1,000 endpoints on all nodes, in slices as Kubernetes makes them. No pod has their addresses.
func (s *scene) manyEndpoints() string {
	var text strings.Builder
	text.WriteString("---\napiVersion: v1\nkind: Service\nmetadata: {name: large}\nspec: {ports: [{name: http, port: 80}]}\n")
	nodes := s.cluster.Shape().Nodes()
	for slice := range 10 {
		fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: large-%d
  labels: {kubernetes.io/service-name: large, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
`, slice)
		for i := range 100 {
			node := nodes[(100*slice+i+2)%len(nodes)] // of the 4 that remain, the shifted zone gets none
			fmt.Fprintf(&text, "- {addresses: [192.0.%d.%d], conditions: {ready: true}, nodeName: %s, zone: %s}\n", slice, i+1, node.Name, node.Zone)
		}
	}
	return text.String()
}

// manyLeave fails unless each endpoint of the large Service in the shifted zone has a hint that no zone can follow.
func (s *scene) manyLeave(ctx context.Context) error {
	list, err := s.DiscoveryV1().EndpointSlices(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=large"})
	if err != nil {
		return err
	}
	out := 0
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			isIn := e.Hints != nil && slices.ContainsFunc(e.Hints.ForZones, func(zone discoveryv1.ForZone) bool {
				return slices.ContainsFunc(s.cluster.Shape().Zones, func(z shape.Zone) bool { return z.Name == zone.Name })
			})
			if isIn == (*e.Zone == s.shiftedZone()) {
				return fmt.Errorf("endpoint %s of %s has the hints %v", e.Addresses[0], *e.Zone, e.Hints)
			}
			if !isIn {
				out++
			}
		}
	}
	if out == 0 {
		return errors.New("no endpoint of the Service large has left")
	}
	return nil
}

func (s *scene) waitNoHints(ctx context.Context) error {
	return kube.Wait(ctx, "no slice to have hints", func(ctx context.Context) (string, error) {
		list, err := s.DiscoveryV1().EndpointSlices(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		hinted := 0
		for i := range list.Items {
			if slices.ContainsFunc(list.Items[i].Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil }) {
				hinted++
			}
		}
		if hinted > 0 {
			return fmt.Sprintf("%d have", hinted), nil
		}
		return "", nil
	})
}

// writes returns the number of writes of Services and slices by everybody.
func (s *scene) writes(ctx context.Context) (total float64, err error) {
	text, err := s.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	for _, resource := range []string{"services", "endpointslices"} {
		for _, verb := range []string{"PATCH", "PUT", "POST", "DELETE"} {
			var lines strings.Builder
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, fmt.Sprintf("resource=%q", resource)) {
					lines.WriteString(line)
				}
			}
			n, err := meter.SumMetric(strings.NewReader(lines.String()), "apiserver_request_total", fmt.Sprintf("verb=%q", verb))
			if err != nil {
				return 0, err
			}
			total += n
		}
	}
	return total, nil
}

// watchedBytes counts the bytes of watches as proxies have them.
type watchedBytes struct {
	received atomic.Int64
	stop     context.CancelFunc
	reading  sync.WaitGroup
}

func (w *watchedBytes) end() {
	w.stop()
	w.reading.Wait()
}

func (s *scene) countWatched(ctx context.Context) (*watchedBytes, error) {
	w := &watchedBytes{}
	ctx, w.stop = context.WithCancel(ctx)
	for client, resource := range map[rest.Interface]string{s.CoreV1().RESTClient(): "services", s.DiscoveryV1().RESTClient(): "endpointslices"} {
		stream, err := client.Get().Namespace(s.namespace).Resource(resource).Param("watch", "true").
			SetHeader("Accept", "application/vnd.kubernetes.protobuf;stream=watch").Stream(ctx)
		if err != nil {
			w.end()
			return nil, fmt.Errorf("watching %s: %w", resource, err)
		}
		w.reading.Go(func() {
			_, _ = io.Copy(counter{&w.received}, stream)
			_ = stream.Close()
		})
	}
	return w, nil
}

// counter counts what is written.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(text []byte) (int, error) {
	c.n.Add(int64(len(text)))
	return len(text), nil
}

// shiftOfReplicas takes the zone of the leading controller out of service. Another replica leads before the shift begins, and
// the API server asks none in the zone.
func shiftOfReplicas(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deploy(ctx))
	before := must(s.routedAtRest(ctx))
	zones := map[string]string{} // by node
	for _, node := range s.cluster.Shape().Nodes() {
		zones[node.Name] = node.Zone
	}
	zoneOfLeader := func(ctx context.Context) (zone string, err error) {
		name, err := s.leader(ctx)
		if err != nil || name == "" {
			return "", err
		}
		pod, err := s.CoreV1().Pods(vicinityNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return zones[pod.Spec.NodeName], nil
	}
	check(s.waitControllers(ctx))
	check(s.waitLeader(ctx))
	zone := must(zoneOfLeader(ctx))
	ready := len(must(controllers(ctx, s.Client)))
	defer undo(&err, func() error {
		return errors.Join(s.unshift(ctx), s.waitControllers(context.WithoutCancel(ctx)), s.waitLeader(context.WithoutCancel(ctx)))
	})
	begun := time.Now()
	check(s.Apply(ctx, "", fmt.Sprintf(`apiVersion: vicinity.dev/v1alpha1
kind: ZoneShift
metadata: {name: %s}
spec:
  from: {value: %s}
  for: 1h
  reason: a promise
  services: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}
`, s.namespace, zone, s.namespace)))
	zs := must(s.waitShift(ctx, "Stored"))
	stored := time.Since(begun)
	if now := must(zoneOfLeader(ctx)); now == zone || now == "" {
		return "", fmt.Errorf("the shift of %s is in force, and the leader is in zone %q", zone, now)
	}
	slices, err := s.DiscoveryV1().EndpointSlices(vicinityNamespace).List(ctx, metav1.ListOptions{})
	check(err)
	asked := 0
	for i := range slices.Items {
		for _, e := range slices.Items[i].Endpoints {
			if e.NodeName == nil || e.Conditions.Ready == nil || !*e.Conditions.Ready || slices.Items[i].Labels[discoveryv1.LabelServiceName] != "vicinity-webhook" {
				continue
			}
			if asked++; zones[*e.NodeName] == zone {
				return "", fmt.Errorf("the API server still asks %s in %s", e.TargetRef.Name, zone)
			}
		}
	}
	if asked == 0 {
		return "", errors.New("the Service vicinity-webhook has no ready endpoint")
	}
	accepted := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted).LastTransitionTime.Sub(zs.CreationTimestamp.Time)
	check(s.unshift(ctx))
	must(s.waitAsBefore(ctx, before))
	check(kube.Wait(ctx, "all replicas to serve again", func(ctx context.Context) (string, error) {
		pods, err := controllers(ctx, s.Client)
		if err != nil || len(pods) == ready {
			return "", err
		}
		return fmt.Sprintf("%d of %d do", len(pods), ready), nil
	}))
	return fmt.Sprintf("the leader's zone is shifted: another leads and accepts after %s, hints are stored after %.1f s, %d endpoints of the webhooks are asked, none there", accepted, stored.Seconds(), asked), nil
}
