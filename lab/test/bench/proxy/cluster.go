package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

type cluster struct {
	*meter.Run
	groups dynamic.NamespaceableResourceInterface
	// names reads only metadata, to count objects.
	names metadata.Interface
	dir   state.Dir
	// Proxies run on node, and endpoints listen on ends.
	node shape.Node
	ends [2]end
	// made is the number of Services.
	made int
	// live is the address of the live Service, whose endpoint listens.
	live netip.AddrPort
}

// end is a listening endpoint that sends a letter to each client.
type end struct {
	address  netip.Addr
	node     shape.Node
	letter   byte
	listener net.Listener
}

// bringUp makes the lab and the live Service.
func (c *cluster) bringUp(ctx context.Context) error {
	err := c.Up(ctx, shape.Options{NodesPerZone: []int{1}, Proxy: string(shape.ProxyNone)}, nil)
	if err != nil {
		return err
	}
	c.node = c.Cluster.Shape().Nodes()[0]
	if c.dir, err = state.Open(c.Folder, c.Cluster.Shape().Name); err != nil {
		return err
	}
	config := c.Client.Config()
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c.groups = untyped.Resource(groupResource)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if c.names, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	if err := c.Client.ApplyCRDs(ctx); err != nil {
		return err
	}
	if err := c.Client.Apply(ctx, "", role); err != nil {
		return err
	}
	for i, node := range c.Cluster.Shape().Nodes()[1:] {
		if err := c.listen(i, node); err != nil {
			return err
		}
	}
	return c.makeLive(ctx)
}

func (c *cluster) listen(index int, node shape.Node) error {
	e := &c.ends[index]
	e.address, e.node, e.letter = c.Cluster.Shape().NodeAddrs(node)[0], node, byte('a'+index)
	var err error
	e.listener, err = fabric.Listen(shape.NodeNamespace(c.Cluster.Shape().Name, node.Index), "tcp", netip.AddrPortFrom(e.address, endpointPort).String())
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
				// The client may be gone.
				_, _ = conn.Write([]byte{e.letter})
				_ = conn.Close()
			}
		}
	}()
	return nil
}

func (c *cluster) makeLive(ctx context.Context) error {
	for _, name := range []string{liveName, crowdName, release.Namespace} {
		if err := c.CreateNamespace(ctx, name); err != nil {
			return err
		}
	}
	service, to := newService(liveName, liveName), c.ends[0]
	err := c.CreateService(ctx, service, meter.NewSlice(service, 0, meter.NewEndpoint(to.address, to.node.Name, to.node.Zone)))
	if err != nil {
		return err
	}
	made, err := c.API.CoreV1().Services(liveName).Get(ctx, liveName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(made.Spec.ClusterIP)
	c.live = netip.AddrPortFrom(address, servicePort)
	return err
}

func (c *cluster) fill(ctx context.Context, size int) error {
	first := c.made
	for i := (first + perNamespace - 1) / perNamespace; i*perNamespace < size; i++ {
		if err := c.CreateNamespace(ctx, namespaceOf(i*perNamespace)); err != nil {
			return fmt.Errorf("making namespaces: %w", err)
		}
	}
	nodes := c.Cluster.Shape().Nodes()
	err := meter.InParallel(ctx, meter.Writers, size-first, func(ctx context.Context, i int) error {
		index := first + i
		service := serviceAt(index)
		return c.CreateService(ctx, service, meter.NewSlice(service, 0, endpointsOf(10, index*perService, (index+1)*perService, nodes)...))
	})
	if err != nil {
		return fmt.Errorf("making Services: %w", err)
	}
	c.made = size
	return nil
}

// annotate patches the annotations of all Services but the live one.
func (c *cluster) annotate(ctx context.Context, patch string) error {
	return meter.InParallel(ctx, meter.Writers, c.made, func(ctx context.Context, i int) error {
		service := serviceAt(i)
		_, err := c.API.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

func (c *cluster) crowd(ctx context.Context, endpoints int) error {
	service, nodes := newService(crowdName, crowdName), c.Cluster.Shape().Nodes()
	if err := c.CreateService(ctx, service); err != nil {
		return err
	}
	return meter.InParallel(ctx, meter.Writers, (endpoints+perSlice-1)/perSlice, func(ctx context.Context, i int) error {
		slice := meter.NewSlice(service, i, endpointsOf(11, i*perSlice, min((i+1)*perSlice, endpoints), nodes)...)
		_, err := c.API.DiscoveryV1().EndpointSlices(crowdName).Create(ctx, slice, metav1.CreateOptions{})
		return err
	})
}

// counted returns the number of Services that only vicinity-proxy serves, and the number of groups.
// Passing groups belong to Services in hand-over.
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

// readGroups returns the number of Services that have a group with partial weights, and the number of
// endpoints in all groups. It reads pages: tens of thousands of groups at once would need too much
// memory.
func (c *cluster) readGroups(ctx context.Context) (weightedServices, endpoints int, err error) {
	found := make(map[string]bool)
	options := metav1.ListOptions{Limit: 1000}
	for {
		list, err := c.groups.List(ctx, options)
		if err != nil {
			return 0, 0, fmt.Errorf("reading groups: %w", err)
		}
		for i := range list.Items {
			var group v1alpha1.EndpointGroup
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &group); err != nil {
				return 0, 0, fmt.Errorf("group %s: %w", list.Items[i].GetName(), err)
			}
			endpoints += len(group.Spec.Endpoints)
			for _, consumer := range group.Spec.Consumers {
				if consumer.Weight != 0 && consumer.Weight != 1000 {
					found[group.Namespace+"/"+group.Spec.Service] = true
				}
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return len(found), endpoints, nil
		}
	}
}

var groupResource = v1alpha1.GroupVersion.WithResource("endpointgroups")

// look is the interval of counting all objects, which costs the API server time, too.
const look = 2 * time.Second

func (c *cluster) until(ctx context.Context, what string, missing func(counted) string) error {
	text := ""
	err := poll(ctx, what, look, func(ctx context.Context) (bool, error) {
		n, err := c.count(ctx)
		if err != nil {
			return false, err
		}
		text = missing(n)
		return text == "", nil
	})
	if err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

func poll(ctx context.Context, what string, pause time.Duration, done func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextCancel(ctx, pause, true, done)
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
	}
	return err
}
