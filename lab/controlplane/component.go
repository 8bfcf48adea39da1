package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

const readyPoll = 50 * time.Millisecond

type component struct {
	name string
	// args are the command line including the program.
	args      []string
	namespace string
	// mounts, if any, returns the path of the mount namespace that the component runs in.
	mounts func() (string, error)
	// ready returns an error until the component works.
	ready func(ctx context.Context) error
	// missedZone, if any, reports whether the component missed an event while it started, and must be
	// restarted.
	missedZone func(ctx context.Context, pid int) (bool, error)
}

// components returns all components, each after the components that it depends on.
func (c *ControlPlane) components() []component {
	all := []component{{
		name:      Etcd,
		args:      c.command(Etcd, c.flags.etcd()),
		namespace: c.namespace,
		ready:     c.readyAt(c.anonymous, "http://"+c.addrs.etcdMetrics.String()+"/health"),
	}, {
		name:      KubeAPIServer,
		args:      c.command(KubeAPIServer, c.flags.apiServer()),
		namespace: c.namespace,
		ready:     c.readyAt(c.anonymous, c.api("/readyz")),
	}}
	if !c.config.Shape.ControlPlaneOnly {
		all = append(all, component{name: Gateway, args: c.config.Gateway, ready: c.gatewayReady})
	}
	all = append(all, component{
		name:      ControllerManager,
		args:      c.command(ControllerManager, c.flags.controllerManager()),
		namespace: c.namespace,
		ready:     c.controllerManagerReady,
	}, component{
		name:      Scheduler,
		args:      c.command(Scheduler, c.flags.scheduler()),
		namespace: c.namespace,
		ready:     c.readyAt(c.anonymous, "https://"+c.addrs.scheduler.String()+"/readyz"),
	})
	return slices.Concat(all, c.runtimes(), c.kubelets(), c.proxies(), c.agents())
}

func (c *ControlPlane) agents() []component {
	if !c.config.Shape.ControlPlaneOnly && c.config.Shape.FakeNodes == 0 {
		return nil
	}
	return []component{{name: Agent, args: c.config.Agent, namespace: c.namespace, ready: c.config.AgentReady}}
}

func (c *ControlPlane) proxies() []component {
	if c.config.Shape.ControlPlaneOnly || !c.config.Shape.Proxy.KubeProxy() {
		return nil
	}
	var all []component
	for _, node := range c.config.Shape.Nodes() {
		namespace := shape.NodeNamespace(c.config.Shape.Name, node.Index)
		name := KubeProxy + "-" + node.Name
		all = append(all, component{
			name:       name,
			args:       c.command(KubeProxy, c.flags.proxy(node)),
			namespace:  namespace,
			ready:      func(ctx context.Context) error { return c.proxyReady(ctx, namespace) },
			missedZone: func(ctx context.Context, pid int) (bool, error) { return c.proxyMissedZone(ctx, node.Name, pid) },
		})
	}
	return all
}

func (c *ControlPlane) command(name string, flags []string) []string {
	return append([]string{c.config.Program, name}, flags...)
}

// Components returns the names of all components in the order in which they start.
func (c *ControlPlane) Components() []string {
	var names []string
	for _, component := range c.components() {
		names = append(names, component.name)
	}
	return names
}

func (c *ControlPlane) find(name string) (component, error) {
	all := c.components()
	i := slices.IndexFunc(all, func(component component) bool { return component.name == name })
	if i < 0 {
		return component{}, fmt.Errorf("component %q: this lab has %s", name, strings.Join(c.Components(), ", "))
	}
	return all[i], nil
}

// Start starts the control plane without the parts of nodes, and returns when the API is ready; Wait
// waits for the rest. It leaves running components alone.
func (c *ControlPlane) Start(ctx context.Context) error {
	// The gateway depends on no other component.
	if err := c.startAll(c.named(Etcd, Gateway)...); err != nil {
		return err
	}
	if err := c.waitAll(ctx, c.named(Etcd)...); err != nil {
		return err
	}
	if err := c.startAll(c.named(KubeAPIServer)...); err != nil {
		return err
	}
	if err := c.waitAll(ctx, c.named(KubeAPIServer, Gateway)...); err != nil {
		return err
	}
	// Not earlier: without an API they would retry with growing pauses.
	return c.startAll(c.named(ControllerManager, Scheduler)...)
}

func (c *ControlPlane) named(names ...string) []component {
	return slices.DeleteFunc(c.components(), func(component component) bool { return !slices.Contains(names, component.name) })
}

// StartNodes starts the agent, missing kubelets, and the runtime of their containers.
func (c *ControlPlane) StartNodes(ctx context.Context) error {
	if err := c.startAll(append(c.agents(), c.runtimes()...)...); err != nil {
		return err
	}
	if err := c.waitAll(ctx, c.runtimes()...); err != nil {
		return err
	}
	return c.startAll(c.kubelets()...)
}

// StartProxies starts kube-proxies that do not run. Each waits for its Node to appear in the API.
func (c *ControlPlane) StartProxies() error { return c.startAll(c.proxies()...) }

// Wait waits until all components are ready. It does not wait for the agent's nodes.
func (c *ControlPlane) Wait(ctx context.Context) error {
	return c.waitAll(ctx, slices.DeleteFunc(c.components(), func(component component) bool { return component.name == Agent })...)
}

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

// Ready returns an error unless a running component works.
func (c *ControlPlane) Ready(ctx context.Context, name string) error {
	component, err := c.find(name)
	if err != nil {
		return err
	}
	return component.ready(ctx)
}

func (c *ControlPlane) process(name string) (*process.Process, error) {
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
		spec := process.Spec{Name: component.name, Args: component.args, Env: Environment(), Namespace: component.namespace}
		if component.mounts != nil {
			var err error
			if spec.Mounts, err = component.mounts(); err != nil {
				return err
			}
		}
		if _, err := process.Start(c.config.Dir, spec); err != nil {
			return err
		}
	}
	return nil
}

// systemPath may be missing from the PATH of users other than root.
const systemPath = "/usr/sbin"

// Environment is the environment of all processes of a lab. It inherits little: an HTTP proxy would
// separate the components, and KUBECONFIG or a pod's variables would lead to other clusters.
func Environment() []string {
	variables := []string{"PATH=" + os.Getenv("PATH") + string(os.PathListSeparator) + systemPath}
	for _, name := range []string{"HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

func (c *ControlPlane) waitAll(ctx context.Context, components ...component) error {
	return inParallel(components, func(component component) error { return c.wait(ctx, component) })
}

// zoneWait is how long a ready kube-proxy may take to log its node's zone.
const zoneWait = 300 * time.Millisecond

// wait waits until a component is ready. It fails if the component ends or the context ends.
func (c *ControlPlane) wait(ctx context.Context, component component) error {
	running, err := c.process(component.name)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	var last error
	var readySince time.Time
	for {
		err := component.ready(ctx)
		if err == nil {
			restart, err := component.mustRestart(ctx, running.PID)
			if err != nil || !restart {
				return err
			}
			last = errors.New("it does not know its node's zone yet")
			if readySince.IsZero() {
				readySince = time.Now()
			}
			if time.Since(readySince) > zoneWait {
				if running, err = c.restart(ctx, component); err != nil {
					return err
				}
				readySince = time.Time{}
			}
		} else if ctx.Err() == nil || last == nil {
			// The end of the context must not replace an earlier error.
			last = err
		}
		if !running.Alive() {
			return c.exitError(component.name)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w; see %s", component.name, ctx.Err(), last, c.config.Dir.Log(component.name))
		case <-ticker.C:
		}
	}
}

func (c component) mustRestart(ctx context.Context, pid int) (bool, error) {
	if c.missedZone == nil {
		return false, nil
	}
	return c.missedZone(ctx, pid)
}

func (c *ControlPlane) restart(ctx context.Context, component component) (*process.Process, error) {
	running, err := c.process(component.name)
	if err != nil {
		return nil, err
	}
	if err := running.Kill(ctx); err != nil {
		return nil, err
	}
	if err := c.startAll(component); err != nil {
		return nil, err
	}
	return c.process(component.name)
}

// proxyMissedZone reports, from its log, whether the kube-proxy of a node has missed the node's
// zone. A starting kube-proxy watches its node before it registers the handler. It loses a change
// in between, takes later events for no change, and ignores zones from then on. A node without a
// zone causes no such change.
func (c *ControlPlane) proxyMissedZone(ctx context.Context, node string, pid int) (bool, error) {
	text, err := os.ReadFile(c.config.Dir.Log(KubeProxy + "-" + node))
	if err != nil || logsZone(string(text), pid) {
		return false, err
	}
	body, err := c.admin.read(ctx, c.api("/api/v1/nodes/"+node))
	if err != nil {
		return false, err
	}
	var object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(body, &object)
	return object.Metadata.Labels[zoneLabel] != "", err
}

// zoneLabel is the label from which kube-proxy reads its node's zone.
const zoneLabel = "topology.kubernetes.io/zone"

// logsZone reports whether the kube-proxy with a process ID logged that it learned its zone. The
// log may have lines of earlier processes.
func logsZone(log string, pid int) bool {
	source := fmt.Sprintf(" %d proxier.go:", pid)
	for line := range strings.Lines(log) {
		if strings.Contains(line, source) && strings.Contains(line, "Updated proxier node topology labels") {
			return true
		}
	}
	return false
}

// exitError reports that a component has ended, with the last line of its log.
func (c *ControlPlane) exitError(name string) error {
	log := c.config.Dir.Log(name)
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("%s has ended: %w", name, err)
	}
	return fmt.Errorf("%s has ended: %s; see %s", name, lastLine(text), log)
}

func inParallel(components []component, do func(component) error) error {
	failed := make([]error, len(components))
	var all sync.WaitGroup
	for i, component := range components {
		all.Go(func() { failed[i] = do(component) })
	}
	all.Wait()
	return errors.Join(failed...)
}

func (c *ControlPlane) readyAt(client *client, url string) func(context.Context) error {
	return func(ctx context.Context) error { return client.get(ctx, url) }
}

// controllerManagerReady also waits for the objects that new pods need: without a service account no
// pod is admitted, and without the authority's certificate no pod starts.
func (c *ControlPlane) controllerManagerReady(ctx context.Context) error {
	if err := c.anonymous.get(ctx, "https://"+c.addrs.controllerManager.String()+"/healthz"); err != nil {
		return err
	}
	for _, path := range []string{"serviceaccounts/default", "configmaps/kube-root-ca.crt"} {
		if err := c.admin.get(ctx, c.api("/api/v1/namespaces/default/"+path)); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) gatewayReady(ctx context.Context) error {
	return c.Get(ctx, "", "https://"+c.addrs.outside.String()+"/readyz")
}

// proxyReady checks that kube-proxy is alive and that the node reaches the API by its cluster
// IP. It needs both: kube-proxy is alive before it has written rules, and rules outlive it.
func (c *ControlPlane) proxyReady(ctx context.Context, namespace string) error {
	if err := c.Get(ctx, namespace, "http://127.0.0.1:10256/livez"); err != nil {
		return err
	}
	service := c.config.Shape.ServiceCIDRs()[0].Addr().Next()
	return c.Get(ctx, namespace, "https://"+service.String()+"/readyz")
}

// Get sends a request without a certificate from a network namespace, or from the host if that is
// empty. It fails unless the status is 2xx.
func (c *ControlPlane) Get(ctx context.Context, namespace, url string) error {
	from, err := newClient(c.dial(namespace), c.ca, nil)
	if err != nil {
		return err
	}
	return from.get(ctx, url)
}
