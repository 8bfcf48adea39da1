package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

const (
	// stopGrace is how long a component may take to end in order.
	stopGrace = 10 * time.Second
	// readyPoll is how often a component that is not ready is asked again.
	readyPoll = 50 * time.Millisecond
)

// component is one process of the control plane.
type component struct {
	name string
	// kind is the name without the suffix of one of several.
	kind string
	// args are its whole command line, the program included.
	args []string
	// namespace is the network namespace it runs in.
	namespace string
	// ready is an error until the component does its work.
	ready func(ctx context.Context) error
	// deaf, if any, reports whether the component missed something while it started
	// that it will never hear again. It is then started anew.
	deaf func(ctx context.Context, pid int) (bool, error)
}

// components are all there are, each after those that it needs.
func (c *ControlPlane) components() []component {
	all := []component{{
		name:      Etcd,
		kind:      Etcd,
		args:      c.command(Etcd, c.flags.etcd()),
		namespace: c.namespace,
		ready:     c.answers(c.anyone, "http://"+c.at.etcdMetrics.String()+"/health"),
	}}
	for i, at := range c.at.apiServers {
		all = append(all, component{
			name:      apiServer(i),
			kind:      KubeAPIServer,
			args:      c.command(KubeAPIServer, c.flags.apiServer(i)),
			namespace: c.namespace,
			ready:     c.answers(c.anyone, "https://"+at.String()+"/readyz"),
		})
	}
	if c.at.gateway() {
		all = append(all, component{name: Gateway, kind: Gateway, args: c.config.Gateway, ready: c.gatewayReady})
	}
	all = append(all, component{
		name:      ControllerManager,
		kind:      ControllerManager,
		args:      c.command(ControllerManager, c.flags.controllerManager()),
		namespace: c.namespace,
		ready:     c.controllerManagerReady,
	}, component{
		name:      Scheduler,
		kind:      Scheduler,
		args:      c.command(Scheduler, c.flags.scheduler()),
		namespace: c.namespace,
		ready:     c.answers(c.anyone, "https://"+c.at.scheduler.String()+"/readyz"),
	})
	return append(all, c.proxies()...)
}

// proxies are the kube-proxies of the nodes.
func (c *ControlPlane) proxies() []component {
	if c.config.Shape.ControlPlaneOnly || !c.config.Shape.Proxy.KubeProxy() {
		return nil
	}
	var all []component
	for _, node := range c.config.Shape.Nodes() {
		namespace := shape.NodeNamespace(c.config.Shape.Name, node.Index)
		name := KubeProxy + "-" + node.Name
		all = append(all, component{
			name:      name,
			kind:      KubeProxy,
			args:      c.command(KubeProxy, c.flags.proxy(node)),
			namespace: namespace,
			ready:     func(ctx context.Context) error { return c.proxyReady(ctx, namespace) },
			deaf:      func(ctx context.Context, pid int) (bool, error) { return c.proxyDeaf(ctx, node.Name, pid) },
		})
	}
	return all
}

// apiServer names the API server with an index from 0.
func apiServer(index int) string {
	if index == 0 {
		return KubeAPIServer
	}
	return KubeAPIServer + "-" + strconv.Itoa(index+1)
}

func (c *ControlPlane) command(name string, flags []string) []string {
	return append([]string{c.config.Program, name}, flags...)
}

// Components are the names of all components, in the order in which they start.
func (c *ControlPlane) Components() []string {
	var names []string
	for _, component := range c.components() {
		names = append(names, component.name)
	}
	return names
}

// find finds a component by its name.
func (c *ControlPlane) find(name string) (component, error) {
	all := c.components()
	i := slices.IndexFunc(all, func(component component) bool { return component.name == name })
	if i < 0 {
		return component{}, fmt.Errorf("component %q: this lab has %s", name, strings.Join(c.Components(), ", "))
	}
	return all[i], nil
}

// Start starts the control plane without the kube-proxies, which need nodes, and
// returns when the API is ready. The rest may still be on its way: Wait waits for it.
// What runs already is left as it is.
func (c *ControlPlane) Start(ctx context.Context) error {
	etcd, servers := c.some(Etcd), c.some(KubeAPIServer)
	// The gateway needs nobody, and two API servers are reached by it.
	if err := c.startAll(append(etcd, c.some(Gateway)...)...); err != nil {
		return err
	}
	if err := c.waitAll(ctx, etcd...); err != nil {
		return err
	}
	if err := c.startAll(servers...); err != nil {
		return err
	}
	if err := c.waitAll(ctx, append(servers, c.some(Gateway)...)...); err != nil {
		return err
	}
	// Only now, since they would retry with growing pauses while there is no API.
	if err := c.startAll(c.some(ControllerManager, Scheduler)...); err != nil {
		return err
	}
	return c.grantAll(ctx)
}

// some are the components of some kinds.
func (c *ControlPlane) some(kinds ...string) []component {
	return slices.DeleteFunc(c.components(), func(component component) bool { return !slices.Contains(kinds, component.kind) })
}

// StartProxies starts the kube-proxies of all nodes that have none. Each waits for its
// Node to appear in the API.
func (c *ControlPlane) StartProxies() error { return c.startAll(c.proxies()...) }

// Wait waits until all components are ready.
func (c *ControlPlane) Wait(ctx context.Context) error { return c.waitAll(ctx, c.components()...) }

// StartComponent starts a component unless it runs, and waits until it is ready.
func (c *ControlPlane) StartComponent(ctx context.Context, name string) error {
	component, err := c.find(name)
	if err != nil {
		return err
	}
	if err := c.startAll(component); err != nil {
		return err
	}
	return c.waitAll(ctx, component)
}

// StopComponent ends a component in order. One that does not run is stopped already.
func (c *ControlPlane) StopComponent(ctx context.Context, name string) error {
	component, err := c.find(name)
	if err != nil {
		return err
	}
	return c.stop(ctx, component, stopGrace)
}

// KillComponent ends a component at once, as a crash does.
func (c *ControlPlane) KillComponent(ctx context.Context, name string) error {
	component, err := c.find(name)
	if err != nil {
		return err
	}
	return c.stop(ctx, component, 0)
}

// PauseComponent freezes a component: it holds its connections and answers nothing.
func (c *ControlPlane) PauseComponent(name string) error {
	running, err := c.process(name)
	if err != nil {
		return err
	}
	return running.Pause()
}

// ResumeComponent lets a paused component go on, and waits until it is ready.
func (c *ControlPlane) ResumeComponent(ctx context.Context, name string) error {
	running, err := c.process(name)
	if err != nil {
		return err
	}
	if err := running.Resume(); err != nil {
		return err
	}
	component, err := c.find(name)
	if err != nil {
		return err
	}
	return c.waitAll(ctx, component)
}

// Ready is an error that says why unless a component runs and does its work.
func (c *ControlPlane) Ready(ctx context.Context, name string) error {
	component, err := c.find(name)
	if err != nil {
		return err
	}
	running, err := c.process(name)
	if err != nil {
		return err
	}
	switch {
	case !running.Alive():
		return c.ended(name)
	case running.Paused():
		return fmt.Errorf("%s is paused", name)
	}
	return component.ready(ctx)
}

// process finds the process of a component.
func (c *ControlPlane) process(name string) (*process.Process, error) {
	if _, err := c.find(name); err != nil {
		return nil, err
	}
	running, err := process.Find(c.config.Dir, name)
	if errors.Is(err, process.ErrNotFound) {
		return nil, fmt.Errorf("%s does not run", name)
	}
	return running, err
}

func (c *ControlPlane) startAll(components ...component) error {
	for _, component := range components {
		if running, err := process.Find(c.config.Dir, component.name); err == nil && running.Alive() {
			continue
		}
		if _, err := process.Start(c.config.Dir, process.Spec{
			Name:      component.name,
			Args:      component.args,
			Env:       Environment(),
			Namespace: component.namespace,
		}); err != nil {
			return err
		}
	}
	return nil
}

// Environment is that of every process of a lab, and takes over as little as possible.
// What else a user has set is for other programs: with a proxy for HTTP the components
// would not find each other, and a KUBECONFIG or the variables of a pod lead elsewhere.
func Environment() []string {
	variables := []string{"PATH=" + os.Getenv("PATH") + string(os.PathListSeparator) + systemPath}
	for _, name := range []string{"HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

func (c *ControlPlane) stop(ctx context.Context, component component, grace time.Duration) error {
	running, err := process.Find(c.config.Dir, component.name)
	if errors.Is(err, process.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return running.Stop(ctx, grace)
}

func (c *ControlPlane) waitAll(ctx context.Context, components ...component) error {
	return together(components, func(component component) error { return c.wait(ctx, component) })
}

// hearing is how long a component that is ready may take to show that it is not deaf.
const hearing = 300 * time.Millisecond

// wait waits until a component is ready, it has ended, or the context ends.
func (c *ControlPlane) wait(ctx context.Context, component component) error {
	running, err := c.process(component.name)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	var last error
	var since time.Time // that it is ready
	for {
		err := component.ready(ctx)
		if err == nil {
			deaf, err := component.isDeaf(ctx, running.PID)
			if err != nil || !deaf {
				return err
			}
			last = errors.New("it does not know its node's zone yet")
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) > hearing {
				if running, err = c.restart(ctx, component); err != nil {
					return err
				}
				since = time.Time{}
			}
		} else if ctx.Err() == nil || last == nil {
			// Of a try that the end of the context cut short, the reason is the one before.
			last = err
		}
		if !running.Alive() {
			return c.ended(component.name)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w; see %s", component.name, ctx.Err(), last, c.config.Dir.Log(component.name))
		case <-ticker.C:
		}
	}
}

func (c component) isDeaf(ctx context.Context, pid int) (bool, error) {
	if c.deaf == nil {
		return false, nil
	}
	return c.deaf(ctx, pid)
}

// restart starts a component anew.
func (c *ControlPlane) restart(ctx context.Context, component component) (*process.Process, error) {
	if err := c.stop(ctx, component, 0); err != nil {
		return nil, err
	}
	if err := c.startAll(component); err != nil {
		return nil, err
	}
	return c.process(component.name)
}

// proxyDeaf reports whether the kube-proxy of a node has not heard of the node's zone,
// by its log. When it starts it asks to be told of the node before it has said who is
// to be told; the news that comes in between is lost, it takes later news for none, and
// ignores zones for the rest of its life. A node without a zone is no news.
func (c *ControlPlane) proxyDeaf(ctx context.Context, node string, pid int) (bool, error) {
	text, err := os.ReadFile(c.config.Dir.Log(KubeProxy + "-" + node))
	if err != nil || heardOfZone(string(text), pid) {
		return false, err
	}
	var zone string
	err = c.anyServer(func(server string) error {
		body, err := c.admin.do(ctx, http.MethodGet, server+"/api/v1/nodes/"+node, nil)
		if err != nil {
			return err
		}
		var object struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(body, &object); err != nil {
			return err
		}
		zone = object.Metadata.Labels[zoneLabel]
		return nil
	})
	return zone != "", err
}

// zoneLabel is the label of nodes by which kube-proxy knows its zone.
const zoneLabel = "topology.kubernetes.io/zone"

// heardOfZone reports whether a kube-proxy says in its log that it learned a zone.
// The log may hold the words of earlier ones, too.
func heardOfZone(log string, pid int) bool {
	source := fmt.Sprintf(" %d proxier.go:", pid)
	for line := range strings.Lines(log) {
		if strings.Contains(line, source) && strings.Contains(line, "Updated proxier node topology labels") {
			return true
		}
	}
	return false
}

// ended says that a component has ended, with its last words.
func (c *ControlPlane) ended(name string) error {
	log := c.config.Dir.Log(name)
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("%s has ended: %w", name, err)
	}
	return fmt.Errorf("%s has ended: %s; see %s", name, lastLine(text), log)
}

// together does something with all components at once.
func together(components []component, do func(component) error) error {
	failed := make([]error, len(components))
	var all sync.WaitGroup
	for i, component := range components {
		all.Go(func() { failed[i] = do(component) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// answers is ready when a URL gives a good answer.
func (c *ControlPlane) answers(client *client, url string) func(context.Context) error {
	return func(ctx context.Context) error { return client.get(ctx, url) }
}

// controllerManagerReady waits for what every new pod needs as well, which the
// controller-manager makes: without a service account no pod is admitted, and without
// the authority's certificate none starts.
func (c *ControlPlane) controllerManagerReady(ctx context.Context) error {
	if err := c.anyone.get(ctx, "https://"+c.at.controllerManager.String()+"/healthz"); err != nil {
		return err
	}
	return c.anyServer(func(server string) error {
		for _, path := range []string{"serviceaccounts/default", "configmaps/kube-root-ca.crt"} {
			if err := c.admin.get(ctx, server+"/api/v1/namespaces/default/"+path); err != nil {
				return err
			}
		}
		return nil
	})
}

// gatewayReady asks for the API from the host.
func (c *ControlPlane) gatewayReady(ctx context.Context) error {
	host, err := c.clientIn("")
	if err != nil {
		return err
	}
	return host.get(ctx, "https://"+c.at.outside.String()+"/readyz")
}

// proxyReady asks for the API by its cluster IP, from the node. That kube-proxy says
// it is alive is not enough, since it says so before it has written a rule; and that
// the cluster IP works is not either, since rules outlive the kube-proxy of before.
func (c *ControlPlane) proxyReady(ctx context.Context, namespace string) error {
	node, err := c.clientIn(namespace)
	if err != nil {
		return err
	}
	if err := node.get(ctx, "http://127.0.0.1:10256/livez"); err != nil {
		return err
	}
	service := c.config.Shape.ServiceCIDRs()[0].Addr().Next()
	return node.get(ctx, "https://"+service.String()+"/readyz")
}

// clientIn makes a client without a certificate in a network namespace.
func (c *ControlPlane) clientIn(namespace string) (*client, error) {
	return newClient(c.dial(namespace), c.ca, nil)
}

// anyServer does something with the first API server for which it works.
func (c *ControlPlane) anyServer(do func(server string) error) error {
	var failed []error
	for _, at := range c.at.apiServers {
		err := do("https://" + at.String())
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
