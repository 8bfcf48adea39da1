package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// writers is how many requests are under way while objects are made: enough for the API
// server to be what takes the time.
const writers = 50

// cluster is a lab without proxies and controller.
type cluster struct {
	*lab.Cluster
	client *lab.Client
	api    kubernetes.Interface
	groups dynamic.NamespaceableResourceInterface
	// names reads objects without what they say, which is enough to count them.
	names metadata.Interface
	dir   state.Dir
	// node is where the proxies run, ends are where the endpoints listen.
	node shape.Node
	ends [2]end
	// made is how many Services there are.
	made int
	// live is the address of the Service whose endpoint listens.
	live netip.AddrPort
}

// end is an endpoint that listens, and says a letter to whoever connects.
type end struct {
	address  netip.Addr
	node     shape.Node
	letter   byte
	listener net.Listener
}

// bringUp makes the lab, whose files are in the folder, with the Service whose endpoint
// listens.
func (b *bench) bringUp(ctx context.Context, folder string) (*cluster, error) {
	labShape, err := shape.FromOptions(shape.Options{
		Name: fmt.Sprintf("bench-proxy-%d", os.Getpid()), NodesPerZone: []int{1}, Proxy: string(shape.ProxyNone),
	})
	if err != nil {
		return nil, err
	}
	up, err := lab.Up(ctx, labShape, lab.Options{Root: folder, Program: filepath.Join(b.bin, "vicinity-lab")})
	if err != nil {
		return nil, fmt.Errorf("bringing a lab up: %w", err)
	}
	c := &cluster{Cluster: up, node: labShape.Nodes()[0]}
	if err := c.prepare(ctx, folder); err != nil {
		return nil, errors.Join(err, c.takeDown(ctx))
	}
	return c, nil
}

func (c *cluster) takeDown(ctx context.Context) error {
	for _, end := range c.ends {
		if end.listener != nil {
			_ = end.listener.Close() // whoever accepts ends by that
		}
	}
	// The context may have ended: that is why there is no more to do.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return c.Down(ctx)
}

func (c *cluster) prepare(ctx context.Context, folder string) error {
	var err error
	if c.dir, err = state.Open(folder, c.Shape().Name); err != nil {
		return err
	}
	if c.client, err = c.Client(); err != nil {
		return err
	}
	config := c.client.Config()
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c.groups = untyped.Resource(groupResource)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.names, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	if err := c.client.ApplyCRDs(ctx); err != nil {
		return err
	}
	if err := c.client.Apply(ctx, "", role); err != nil {
		return err
	}
	for i, node := range c.Shape().Nodes()[1:] {
		if err := c.listen(i, node); err != nil {
			return err
		}
	}
	return c.makeLive(ctx)
}

// listen makes an end on a node.
func (c *cluster) listen(index int, node shape.Node) error {
	e := &c.ends[index]
	e.address, e.node, e.letter = c.Shape().NodeAddrs(node)[0], node, byte('a'+index)
	var err error
	e.listener, err = fabric.Listen(shape.NodeNamespace(c.Shape().Name, node.Index), "tcp", netip.AddrPortFrom(e.address, endpointPort).String())
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := e.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				// Whoever asked may have gone.
				_, _ = conn.Write([]byte{e.letter})
				_ = conn.Close()
			}
		}
	}()
	return nil
}

// makeLive makes the Service whose endpoint listens.
func (c *cluster) makeLive(ctx context.Context) error {
	for _, name := range []string{liveName, crowdName, release.Namespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	made, err := c.api.CoreV1().Services(liveName).Create(ctx, newService(liveName, liveName), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(made.Spec.ClusterIP)
	if err != nil {
		return err
	}
	c.live = netip.AddrPortFrom(address, servicePort)
	slice := newSlice(liveName, liveName, 0, nil)
	slice.Endpoints = append(slice.Endpoints, endpoint(c.ends[0].address, c.ends[0].node))
	_, err = c.api.DiscoveryV1().EndpointSlices(liveName).Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// fill makes Services until there are so many.
func (c *cluster) fill(ctx context.Context, size int) error {
	first := c.made
	for i := (first + perNamespace - 1) / perNamespace; i*perNamespace < size; i++ {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i * perNamespace)}}
		if _, err := c.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("making namespaces: %w", err)
		}
	}
	nodes := c.Shape().Nodes()
	err := meter.InParallel(ctx, writers, size-first, func(ctx context.Context, i int) error {
		service := serviceAt(first + i)
		if _, err := c.api.CoreV1().Services(service.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return err
		}
		slice := newSlice(service.Namespace, service.Name, 0, endpointsOf(first+i, nodes))
		_, err := c.api.DiscoveryV1().EndpointSlices(service.Namespace).Create(ctx, slice, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("making Services: %w", err)
	}
	c.made = size
	return nil
}

// annotate gives all Services but the one that is live annotations, as JSON.
func (c *cluster) annotate(ctx context.Context, patch string) error {
	return meter.InParallel(ctx, writers, c.made, func(ctx context.Context, i int) error {
		service := serviceAt(i)
		_, err := c.api.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// crowd makes a Service of so many endpoints.
func (c *cluster) crowd(ctx context.Context, endpoints int) error {
	if _, err := c.api.CoreV1().Services(crowdName).Create(ctx, newService(crowdName, crowdName), metav1.CreateOptions{}); err != nil {
		return err
	}
	nodes := c.Shape().Nodes()
	return meter.InParallel(ctx, writers, (endpoints+perSlice-1)/perSlice, func(ctx context.Context, i int) error {
		slice := newSlice(crowdName, crowdName, i, nil)
		for n := i * perSlice; n < min((i+1)*perSlice, endpoints); n++ {
			slice.Endpoints = append(slice.Endpoints, endpoint(addressAt(11, n), nodes[n%len(nodes)]))
		}
		_, err := c.api.DiscoveryV1().EndpointSlices(crowdName).Create(ctx, slice, metav1.CreateOptions{})
		return err
	})
}

// counted is how many Services vicinity-proxy alone serves, and how many groups there
// are. Groups that are passing are of Services that are being handed over.
type counted struct{ served, groups, passing int }

func (c *cluster) count(ctx context.Context) (n counted, err error) {
	for _, one := range []struct {
		into     *int
		resource schema.GroupVersionResource
		selector string
	}{
		{&n.served, corev1.SchemeGroupVersion.WithResource("services"), "service.kubernetes.io/service-proxy-name=vicinity"},
		{&n.groups, groupResource, ""},
		{&n.passing, groupResource, v1alpha1.LabelHandOver},
	} {
		list, err := c.names.Resource(one.resource).List(ctx, metav1.ListOptions{LabelSelector: one.selector, ResourceVersion: "0"})
		if err != nil {
			return n, fmt.Errorf("counting %s: %w", one.resource.Resource, err)
		}
		*one.into = len(list.Items)
	}
	return n, nil
}

// weightedServices is how many Services have a group with a weight that is not full, and how
// many endpoints all groups have.
func (c *cluster) weightedServices(ctx context.Context) (services, endpoints int, err error) {
	found := make(map[string]bool)
	err = c.eachGroup(ctx, func(group *v1alpha1.EndpointGroup) {
		endpoints += len(group.Spec.Endpoints)
		for _, consumer := range group.Spec.Consumers {
			if consumer.Weight != 0 && consumer.Weight != 1000 {
				found[group.Namespace+"/"+group.Spec.Service] = true
			}
		}
	})
	return len(found), endpoints, err
}

// endpointsInGroups is how many endpoints all groups have.
func (c *cluster) endpointsInGroups(ctx context.Context) (endpoints int, err error) {
	err = c.eachGroup(ctx, func(group *v1alpha1.EndpointGroup) { endpoints += len(group.Spec.Endpoints) })
	return endpoints, err
}

// eachGroup calls a function with all groups. It reads them a part at a time: tens of
// thousands at once are more than this program should hold.
func (c *cluster) eachGroup(ctx context.Context, each func(*v1alpha1.EndpointGroup)) error {
	options := metav1.ListOptions{Limit: 1000}
	for {
		list, err := c.groups.List(ctx, options)
		if err != nil {
			return fmt.Errorf("reading groups: %w", err)
		}
		for i := range list.Items {
			var group v1alpha1.EndpointGroup
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &group); err != nil {
				return fmt.Errorf("group %s: %w", list.Items[i].GetName(), err)
			}
			each(&group)
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// groupResource are the groups.
var groupResource = v1alpha1.GroupVersion.WithResource("endpointgroups")

// look is how often all objects are counted: that costs the API server time, too.
const look = 2 * time.Second

// until waits until a count is as wanted.
func (c *cluster) until(ctx context.Context, what string, missing func(counted) string) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		n, err := c.count(ctx)
		if err != nil {
			return err
		}
		text := missing(n)
		if text == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s (%s): %w", what, text, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
