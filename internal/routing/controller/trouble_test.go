package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// lagging is a client that reads from a cache, where each kind of object may be behind the client's own writes. Its
// writes may fail.
type lagging struct {
	client.WithWatch
	// cached has the list of all objects of each kind. copies has deep copies, to find changes by the code under test.
	cached, copies map[string]client.ObjectList
	// trouble chooses how the next write fails, and afterWrite runs after it.
	trouble    func() trouble
	afterWrite func()
	// writes counts attempts.
	writes int
}

// trouble is a kind of failure of a write.
type trouble string

const (
	noTrouble   trouble = ""
	refused     trouble = "refused"     // not stored
	unanswered  trouble = "unanswered"  // stored, but the client gets an error
	conflicting trouble = "conflicting" // not stored, because the resource version is old
)

// newLagging returns a client without trouble, whose cache is up to date.
func newLagging(w *world) *lagging {
	w.t.Helper()
	c := &lagging{
		WithWatch: w.client, cached: map[string]client.ObjectList{}, copies: map[string]client.ObjectList{},
		trouble: func() trouble { return noTrouble }, afterWrite: func() {},
	}
	for _, list := range kinds() {
		if err := c.catchUp(list); err != nil {
			w.t.Fatal(err)
		}
	}
	return c
}

// catchUp updates the cache of a kind. Readers share the cached objects, so it fails if one was changed.
func (c *lagging) catchUp(list client.ObjectList) error {
	kind := fmt.Sprintf("%T", list)
	if !equality.Semantic.DeepEqual(c.cached[kind], c.copies[kind]) {
		return fmt.Errorf("the cache was written to: it has\n%+v\nof\n%+v", c.cached[kind], c.copies[kind])
	}
	if err := c.WithWatch.List(context.Background(), list); err != nil {
		return err
	}
	c.cached[kind], c.copies[kind] = list, list.DeepCopyObject().(client.ObjectList)
	return nil
}

// kinds are lists of all kinds of objects that are cached.
func kinds() []client.ObjectList {
	return []client.ObjectList{
		&corev1.ServiceList{}, &corev1.NodeList{}, &discoveryv1.EndpointSliceList{},
		&v1alpha1.EndpointGroupList{}, &v1alpha1.RoutingPolicyList{}, &v1alpha1.ClusterRoutingPolicyList{}, &v1alpha1.ZoneShiftList{},
	}
}

// List ignores its options: the cache has objects of one Service only.
func (c *lagging) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	objects, err := meta.ExtractList(c.cached[fmt.Sprintf("%T", list)])
	if err != nil {
		return err
	}
	return meta.SetList(list, objects)
}

func (c *lagging) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if object, ok := object.(*corev1.Service); ok {
		for _, service := range c.cached[fmt.Sprintf("%T", &corev1.ServiceList{})].(*corev1.ServiceList).Items {
			if client.ObjectKeyFromObject(&service) == key {
				*object = service
				return nil
			}
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c *lagging) write(do func() error) error {
	c.writes++
	defer c.afterWrite()
	switch c.trouble() {
	case refused:
		return errors.New("the API server is away")
	case conflicting:
		return apierrors.NewConflict(schema.GroupResource{}, "", errors.New("changed"))
	case unanswered:
		if err := do(); err != nil {
			return err
		}
		return errors.New("no answer")
	}
	err := do()
	if err != nil && strings.Contains(err.Error(), "test failed") { // as the API server has it
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false)
	}
	return err
}

func (c *lagging) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.write(func() error {
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", c.writes)))
		return c.WithWatch.Create(ctx, object, options...)
	})
}

func (c *lagging) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.write(func() error { return c.WithWatch.Update(ctx, object, options...) })
}

func (c *lagging) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.write(func() error { return c.WithWatch.Delete(ctx, object, options...) })
}

func (c *lagging) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.write(func() error { return c.WithWatch.Patch(ctx, object, patch, options...) })
}

func (c *lagging) Status() client.SubResourceWriter {
	return laggingStatus{c.WithWatch.Status(), c}
}

type laggingStatus struct {
	client.SubResourceWriter
	c *lagging
}

func (s laggingStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return s.c.write(func() error { return s.SubResourceWriter.Patch(ctx, object, patch, options...) })
}

// A Service changes at random while writes fail and caches are behind. When the trouble ends, the controller settles,
// and a restarted controller changes nothing.
func TestTroublePasses(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := newPlay(t, r)
		p.changePods()
		p.annotate()
		p.runKubernetes()
		p.catchUp()
		p.cache.trouble = func() trouble {
			return rapid.SampledFrom([]trouble{noTrouble, noTrouble, noTrouble, noTrouble, refused, unanswered, conflicting}).Draw(r, "trouble")
		}
		for range rapid.IntRange(0, 40).Draw(r, "things") {
			p.watch()
			p.takeRandomStep()
		}
		p.settleWithoutTrouble()
		p.checkShift()
		p.deleteShift()
		p.settleWithoutTrouble()
		p.check()
	})
}

// play is a world with one Service, which changes at random.
type play struct {
	*world
	t     *rapid.T
	cache *lagging
	// webhook says that the webhook runs, so hints survive writes of Kubernetes' controller.
	webhook bool
	pods    []playedPod
	next    int
	// newest is the highest version of any group, also of deleted ones: the fake API server counts versions by object.
	newest int
}

type playedPod struct {
	address, node string
	ready         bool
	slice         int
}

var playedAnnotations = []map[string]string{
	{},
	{v1alpha1.AnnotationSameZone: v1alpha1.Prefer},
	{v1alpha1.AnnotationSameZone: v1alpha1.Prefer},
	{v1alpha1.AnnotationSameZone: v1alpha1.Require},
	{v1alpha1.AnnotationSameZone: v1alpha1.Balanced},
	{v1alpha1.AnnotationTopologyKeys: "kubernetes.io/hostname,topology.kubernetes.io/zone,*"},
	{v1alpha1.AnnotationTopologyMode: "vicinity.dev/near"},
	{v1alpha1.AnnotationTopologyAwareHints: "auto"},
}

const (
	playedService = "web"
	otherProxy    = "other"
)

func newPlay(base testing.TB, t *rapid.T) *play {
	p := &play{world: newWorld(base, append(threeZones(), aPolicy("near", v1alpha1.RoutingPolicySpec{}))...), t: t, webhook: true}
	p.makeService()
	p.cache = newLagging(p.world)
	p.restart()
	return p
}

func (p *play) restart() {
	options := testOptions()
	options.HandBackGrace, options.Settings.TakeOverAuto, options.Settings.GroupSize = 10*time.Second, true, 3
	p.reconciler = newReconciler(p.cache, p.recorder, p.clock, options)
}

func (p *play) makeService() {
	p.next++
	service := aService(playedService)
	service.UID = types.UID(fmt.Sprintf("service-%d", p.next))
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	p.create(service)
}

func (p *play) exists() bool {
	err := p.client.Get(context.Background(), types.NamespacedName{Namespace: "shop", Name: playedService}, &corev1.Service{})
	return err == nil
}

func (p *play) catchUp() {
	for _, list := range kinds() {
		if err := p.cache.catchUp(list); err != nil {
			p.t.Fatal(err)
		}
	}
	p.refreshNodes()
}

func (p *play) refreshNodes() {
	if err := p.reconciler.nodes.refresh(context.Background(), newQueue()); err != nil {
		p.t.Fatal(err)
	}
}

// runKubernetes runs Kubernetes' controllers once: slices follow the pods and the labels of their Service, and groups
// are deleted after it.
func (p *play) runKubernetes() {
	ctx := context.Background()
	service := &corev1.Service{}
	if err := p.client.Get(ctx, types.NamespacedName{Namespace: "shop", Name: playedService}, service); err != nil {
		service = nil
	}
	for _, group := range p.groups() {
		if owner := metav1.GetControllerOf(group); owner == nil || service == nil || owner.UID != service.UID {
			if err := p.client.Delete(ctx, group); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	existing := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range p.slices(playedService) {
		existing[slice.Name] = slice
	}
	for number := range 4 {
		slice := p.sliceOf(number)
		old := existing[slice.Name]
		switch {
		case service == nil || len(slice.Endpoints) == 0 && number != 0 && number != 3: // each family has a slice
			if old != nil {
				if err := p.client.Delete(ctx, old); err != nil {
					p.t.Fatal(err)
				}
			}
			continue
		case old == nil:
			p.copyLabels(slice, service)
			p.create(slice)
			continue
		}
		p.rewrite(old, slice, service)
	}
}

func (p *play) copyLabels(slice *discoveryv1.EndpointSlice, service *corev1.Service) {
	for _, label := range []string{v1alpha1.LabelRouted, v1alpha1.LabelServiceProxyName} {
		delete(slice.Labels, label)
		if value, found := service.Labels[label]; found {
			slice.Labels[label] = value
		}
	}
}

// rewrite updates a slice as Kubernetes' controller does. The webhook keeps the hints of slices with the label.
func (p *play) rewrite(old, slice *discoveryv1.EndpointSlice, service *corev1.Service) {
	before := old.DeepCopy()
	hints := map[string]*discoveryv1.EndpointHints{}
	for _, e := range old.Endpoints {
		hints[e.Addresses[0]] = e.Hints
	}
	old.Endpoints = slice.Endpoints
	p.copyLabels(old, service)
	if p.webhook && old.Labels[v1alpha1.LabelRouted] == "true" {
		hinted := slices.ContainsFunc(before.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })
		for i := range old.Endpoints {
			e := &old.Endpoints[i]
			if e.Hints = hints[e.Addresses[0]]; e.Hints == nil && hinted {
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *e.Zone}}}
			}
		}
	}
	if !equality.Semantic.DeepEqual(before, old) {
		p.update(old)
	}
}

func (p *play) sliceOf(number int) *discoveryv1.EndpointSlice {
	slice := aSlice(playedService, number, "")
	switch number {
	case 2:
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new("admin"), Port: new(int32(81))})
	case 3:
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, pod := range p.pods {
		if pod.slice != number {
			continue
		}
		zone, _, _ := strings.Cut(pod.node, "-")
		address := pod.address
		if number == 3 {
			address = "fd00::" + strings.ReplaceAll(address, ".", ":")
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, NodeName: new(pod.node), Zone: new(zone),
			Conditions: discoveryv1.EndpointConditions{Ready: new(pod.ready)},
		})
	}
	return slice
}

func (p *play) takeRandomStep() {
	switch what := rapid.SampledFrom([]string{
		"sync", "sync", "sync", "sync", "catch up", "catch up", "cache", "cache", "cache", "cache", "kubernetes", "kubernetes", "pods", "pods", "time",
		"wish", "restart", "webhook", "node", "acknowledge", "acknowledge", "remake", "meddle", "shift", "shift",
	}).Draw(p.t, "what"); what {
	case "sync":
		p.syncOnce()
	case "catch up":
		p.catchUp()
	case "cache":
		if err := p.cache.catchUp(rapid.SampledFrom(kinds()).Draw(p.t, "kind")); err != nil {
			p.t.Fatal(err)
		}
		p.refreshNodes()
	case "kubernetes":
		p.runKubernetes()
	case "pods":
		p.changePods()
	case "time":
		p.clock.SetTime(p.clock.Now().Add(rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, time.Minute}).Draw(p.t, "time")))
	case "wish":
		p.annotate()
	case "restart":
		p.restart()
	case "webhook":
		p.webhook = !p.webhook
	case "node":
		p.changeNode()
	case "acknowledge":
		p.acknowledgeAll()
	case "remake":
		p.deleteOrCreateService()
	case "shift":
		p.createOrDeleteShift()
	case "meddle":
		p.meddle()
	}
}

func (p *play) syncOnce() time.Duration {
	result, err := p.reconciler.Reconcile(context.Background(), serviceNamed("shop", playedService)[0])
	if err != nil {
		return time.Second
	}
	return result.RequeueAfter
}

// acknowledgeAll has all proxies acknowledge the newest groups.
func (p *play) acknowledgeAll() {
	p.noteVersions()
	if len(p.groups()) > 0 {
		p.acknowledge(strconv.Itoa(p.newest))
	} else {
		p.acknowledge("")
	}
}

func (p *play) noteVersions() {
	if version, err := strconv.Atoi(p.newestVersion()); err == nil {
		p.newest = max(p.newest, version)
	}
}

func (p *play) changePods() {
	for range rapid.IntRange(1, 6).Draw(p.t, "changes") {
		i := rapid.IntRange(-4, len(p.pods)-1).Draw(p.t, "pod")
		switch {
		case i < 0:
			p.next++
			p.pods = append(p.pods, playedPod{
				address: fmt.Sprintf("10.0.%d.%d", p.next/200, p.next%200+1), ready: rapid.IntRange(0, 4).Draw(p.t, "ready") > 0,
				node: rapid.SampledFrom([]string{"a-1", "b-1", "c-1"}).Draw(p.t, "node"), slice: rapid.IntRange(0, 3).Draw(p.t, "slice"),
			})
		case rapid.Bool().Draw(p.t, "delete"):
			p.pods = slices.Delete(p.pods, i, i+1)
		default:
			p.pods[i].ready = !p.pods[i].ready
		}
	}
}

func (p *play) annotate() {
	if !p.exists() {
		return
	}
	annotations := maps.Clone(rapid.SampledFrom(playedAnnotations).Draw(p.t, "wish"))
	if rapid.Bool().Draw(p.t, "proxy") {
		annotations[v1alpha1.AnnotationProxy] = "true"
	}
	service := p.service(playedService)
	service.Annotations = annotations
	p.update(service)
}

func (p *play) changeNode() {
	node := &corev1.Node{}
	name := rapid.SampledFrom([]string{"a-1", "b-1", "c-1"}).Draw(p.t, "node")
	if err := p.client.Get(context.Background(), types.NamespacedName{Name: name}, node); err != nil {
		p.t.Fatal(err)
	}
	if rapid.Bool().Draw(p.t, "relabel") {
		node.Labels[topology.Zone] = rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(p.t, "zone")
		p.update(node)
		return
	}
	node.Status.Conditions[0].Status = rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}).Draw(p.t, "ready")
	p.update(node)
}

func (p *play) deleteOrCreateService() {
	if p.exists() {
		if err := p.client.Delete(context.Background(), p.service(playedService)); err != nil {
			p.t.Fatal(err)
		}
		return
	}
	p.makeService()
}

// createOrDeleteShift takes zone a out of service, or ends that.
func (p *play) createOrDeleteShift() {
	if p.deleteShift() {
		return
	}
	zs := anAcceptedShift(p.clock.Now(), rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(p.t, "ramp"))
	if rapid.Bool().Draw(p.t, "drain") {
		zs.Spec.DrainConnections = &metav1.Duration{Duration: 10 * time.Second}
	}
	p.create(zs)
}

func (p *play) deleteShift() (deleted bool) {
	err := p.client.Delete(context.Background(), &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: "out"}})
	return err == nil
}

// checkShift expects that endpoints in the shifted zone have the hints of the decision, if a shift is in force.
func (p *play) checkShift() {
	if !p.exists() {
		return
	}
	service := p.service(playedService)
	shifts, _, err := shiftsOf(context.Background(), p.client, service, p.clock.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	if len(shifts) > 0 && service.Labels[v1alpha1.LabelServiceProxyName] == "" && len(p.groups()) == 0 {
		p.checkHints(service)
	}
}

// meddle changes Vicinity's objects as a user may.
func (p *play) meddle() {
	groups := p.groups()
	switch what := rapid.SampledFrom([]string{"labels", "proxy", "group", "policy"}).Draw(p.t, "meddle"); {
	case what == "labels" && p.exists():
		service := p.service(playedService)
		service.Labels = nil
		p.update(service)
	case what == "proxy" && p.exists():
		service := p.service(playedService)
		service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: otherProxy}
		p.update(service)
	case what == "group" && len(groups) > 0:
		if err := p.client.Delete(context.Background(), rapid.SampledFrom(groups).Draw(p.t, "group")); err != nil {
			p.t.Fatal(err)
		}
	case what == "policy":
		policy := aPolicy("near", v1alpha1.RoutingPolicySpec{})
		if p.client.Delete(context.Background(), policy) != nil {
			p.create(policy)
		}
	}
}

// watch checks after each write that a Service which only vicinity-proxy serves keeps a group.
func (p *play) watch() {
	grouped := len(p.groups()) > 0
	p.cache.afterWrite = func() {
		p.noteVersions()
		served := p.exists() && p.service(playedService).Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName
		if now := len(p.groups()) > 0; served && grouped && !now {
			p.t.Fatalf("the Service has no proxy: %s", p.state())
		}
	}
}

// settleWithoutTrouble syncs with current caches until nothing changes.
func (p *play) settleWithoutTrouble() {
	p.cache.trouble = func() trouble { return noTrouble }
	p.webhook = true
	for range 100 {
		p.runKubernetes()
		p.watch()
		p.catchUp()
		p.acknowledgeAll()
		before := p.cache.writes
		again := p.syncOnce()
		if (again == 0 || again > time.Hour) && p.cache.writes == before { // which is the end of a shift
			return
		}
		p.clock.SetTime(p.clock.Now().Add(max(again, time.Second)))
	}
	p.t.Fatalf("the Service does not settle: %s", p.state())
}

func (p *play) state() string {
	text := fmt.Sprintf("hints %s\n", p.hints())
	if p.exists() {
		s := p.service(playedService)
		text += fmt.Sprintf("annotations %v labels %v condition %+v\n", s.Annotations, s.Labels, routing.ConditionOf(s))
	}
	for _, g := range p.groups() {
		text += fmt.Sprintf("group %s %v %+v %v\n", g.Name, g.Labels, g.Spec, g.Annotations)
	}
	return text
}

// check expects the objects that the annotations ask for, and that a restarted controller changes nothing.
func (p *play) check() {
	if m, proxies := p.reconciler.memory, p.reconciler.proxies; !p.exists() && len(m.services)+len(m.reports)+len(proxies.services) > 0 {
		p.t.Fatal("a deleted Service is remembered")
	}
	before := p.state()
	written := p.cache.writes
	p.restart()
	p.catchUp()
	p.acknowledgeAll()
	for range 5 {
		again := p.syncOnce()
		p.catchUp()
		p.acknowledgeAll()
		p.clock.SetTime(p.clock.Now().Add(max(again, time.Second)))
	}
	if n := p.cache.writes - written; n > 0 || p.state() != before {
		p.t.Fatalf("a restart changes what is settled, by %d writes\nfrom\n%sto\n%s", n, before, p.state())
	}
	if !p.exists() {
		return
	}
	service := p.service(playedService)
	proxy := service.Labels[v1alpha1.LabelServiceProxyName]
	served, grouped := proxy == v1alpha1.ServiceProxyName, service.Annotations[v1alpha1.AnnotationProxy] == "true" && proxy != otherProxy
	if grouped && served != p.anyNodeReady() {
		p.t.Fatalf("nodes are ready: %t, served: %t\n%s", p.anyNodeReady(), served, p.state())
	}
	if !grouped && (served || len(p.groups()) > 0) {
		p.t.Fatalf("groups are left\n%s", p.state())
	}
	_, routed := service.Labels[v1alpha1.LabelRouted]
	if len(service.Annotations) == 0 && (routed || routing.ConditionOf(service) != nil || strings.ContainsAny(p.hints(), "abcd")) {
		p.t.Fatalf("something is left\n%s", p.state())
	}
	if service.Annotations[v1alpha1.AnnotationSameZone] == v1alpha1.Prefer && !served {
		p.checkHints(service)
	}
}

func (p *play) anyNodeReady() bool {
	var list corev1.NodeList
	if err := p.client.List(context.Background(), &list); err != nil {
		p.t.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(node corev1.Node) bool { return intent.IsReady(&node) })
}

// checkHints compares hints with the decision.
func (p *play) checkHints(service *corev1.Service) {
	d, err := p.decision(service)
	if err != nil {
		p.t.Fatal(err)
	}
	if routing.TroubleHintsLost.IsOn(service) {
		p.t.Fatalf("the condition still says that hints are lost\n%s", p.state())
	}
	for _, slice := range p.slices(playedService) {
		if _, changed := d.Hinted().Hints().Apply(slice); changed > 0 || slice.Annotations[v1alpha1.AnnotationHeld] != "" {
			p.t.Fatalf("%s is not as decided\n%s", slice.Name, p.state())
		}
	}
}

func (p *play) decision(service *corev1.Service) (routing.Decision, error) {
	cluster, err := p.reconciler.nodes.current(context.Background())
	if err != nil {
		return routing.Decision{}, err
	}
	in, err := read(context.Background(), p.client, service)
	if err != nil {
		return routing.Decision{}, err
	}
	in.Cluster, in.Settings = cluster, p.reconciler.options.Settings
	if in.Shifts, _, err = shiftsOf(context.Background(), p.client, service, p.clock.Now()); err != nil {
		return routing.Decision{}, err
	}
	return routing.Decide(in)
}
