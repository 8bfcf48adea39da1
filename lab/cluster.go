// Package lab runs a real multi-zone Kubernetes on this machine, for commands and tests.
//
// Up makes a lab and returns when its nodes are ready and its Services work. The lab
// outlives the process that called Up. Open finds a running lab from its state folder, and
// Down removes a lab, even an incomplete one.
//
// Its packages: shape describes a lab, image maps names of images to programs, state keeps its
// files, process runs its processes, fabric is its network, controlplane runs etcd and
// Kubernetes, cri runs containers, storage makes volumes, agent stands in for nodes without
// network, program implements the images of containers, release installs Vicinity's chart, load
// sends requests, and dnsquery asks DNS servers.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// Options say how to make and find labs, beside their shape. The zero value is for command lines.
type Options struct {
	// Root is the folder of all labs; empty means state.DefaultRoot.
	Root string
	// Program is the vicinity-lab program, which runs a lab's own processes; empty means this
	// one.
	Program string
	// Kubernetes is the built lab/kubernetes. Empty means the program that the lab was brought
	// up with. For a new lab, empty means vicinity-kubernetes beside Program, or
	// $VICINITY_KUBERNETES.
	Kubernetes string
	// Images are additional images of a new lab.
	Images image.Map
	// Log gets a line for each step; nil discards them.
	Log io.Writer
	// Keep keeps a lab that failed to come up.
	Keep bool
}

func (o Options) complete() (Options, error) {
	var err error
	if o.Root == "" {
		if o.Root, err = state.DefaultRoot(); err != nil {
			return o, err
		}
	}
	if o.Program == "" {
		if o.Program, err = os.Executable(); err != nil {
			return o, fmt.Errorf("finding the vicinity-lab program: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o, nil
}

// kubernetes finds the built lab/kubernetes for a new lab. It resolves links, since
// vicinity-kubernetes may later link to another release.
func (o Options) kubernetes() (string, error) {
	candidates := []string{o.Kubernetes}
	if o.Kubernetes == "" {
		candidates = []string{filepath.Join(filepath.Dir(o.Program), "vicinity-kubernetes"), os.Getenv("VICINITY_KUBERNETES")}
	}
	for _, candidate := range candidates {
		if candidate == "" {
			continue
		}
		path, err := filepath.Abs(candidate)
		if err != nil {
			return "", err
		}
		if followed, err := filepath.EvalSymlinks(path); err == nil && isProgram(followed) {
			return followed, nil
		}
	}
	return "", fmt.Errorf("there is no Kubernetes program at %s; build it with make kubernetes, or name it with --kubernetes or VICINITY_KUBERNETES",
		candidates[0])
}

// kubernetesOf finds the built lab/kubernetes of an existing lab: the one of the options, or the lab's
// own if it still exists.
func (o Options) kubernetesOf(found state.Lab) (string, error) {
	if o.Kubernetes == "" && isProgram(found.Kubernetes) {
		return found.Kubernetes, nil
	}
	return o.kubernetes()
}

// Cluster is a running lab.
type Cluster struct {
	options    Options
	kubernetes string
	dir        state.Dir

	mu    sync.Mutex
	known state.Lab // as this process last read it

	clientOnce sync.Once
	client     *Client
	clientErr  error
}

// Open finds a running lab.
func Open(name string, options Options) (*Cluster, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	dir, err := state.Open(options.Root, name)
	if errors.Is(err, state.ErrNotFound) {
		return nil, noSuchLab(name)
	} else if err != nil {
		return nil, err
	}
	found, err := loadUp(dir)
	if err != nil {
		return nil, err
	}
	kubernetes, err := options.kubernetesOf(found)
	if err != nil {
		return nil, err
	}
	return &Cluster{options: options, kubernetes: kubernetes, dir: dir, known: found}, nil
}

// loadUp reads the state of a lab. It fails if the lab is not up.
func loadUp(dir state.Dir) (state.Lab, error) {
	found, err := dir.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return state.Lab{}, err
	}
	if !found.Up {
		return state.Lab{}, fmt.Errorf("lab %q is not up; run vicinity lab up", dir.Name())
	}
	return found, nil
}

func noSuchLab(name string) error {
	return fmt.Errorf("there is no lab %q; run vicinity lab up", name)
}

// Names lists all labs, up or not.
func Names(options Options) ([]string, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	dirs, err := state.List(options.Root)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, dir := range dirs {
		names = append(names, dir.Name())
	}
	return names, nil
}

// Shape is the lab's current shape.
func (c *Cluster) Shape() shape.Shape { return c.current().Shape }

// current returns the state of the lab as this process knows it.
func (c *Cluster) current() state.Lab {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

func (c *Cluster) setCurrent(now state.Lab) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = now
}

func (c *Cluster) save(now state.Lab) error {
	if err := c.dir.Save(now); err != nil {
		return err
	}
	c.setCurrent(now)
	return nil
}

// Options returns the options that the lab was opened with.
func (c *Cluster) Options() Options { return c.options }

// Kubeconfig is the path of the administrator's kubeconfig, for the host.
func (c *Cluster) Kubeconfig() string { return c.dir.Kubeconfig() }

// Client returns the administrator's client.
func (c *Cluster) Client() (*Client, error) {
	c.clientOnce.Do(func() { c.client, c.clientErr = newClient(c.dir.Kubeconfig()) })
	return c.client, c.clientErr
}

// network returns the lab's fabric. A lab that is only a control plane has none.
func (c *Cluster) network() (*fabric.Fabric, error) {
	s := c.Shape()
	if s.ControlPlaneOnly {
		return nil, fmt.Errorf("lab %q is only a control plane and has no network", s.Name)
	}
	return fabric.Open(s)
}

func (c *Cluster) controlPlane() (*controlplane.ControlPlane, error) {
	now := c.current()
	return controlplane.New(controlplane.Config{
		Dir:     c.dir,
		Shape:   now.Shape,
		Port:    now.Port,
		Program: c.kubernetes,
		Gateway: c.internal("gateway"),
		Runtime: c.internal("runtime"),

		Agent:      c.internal("agent"),
		AgentReady: c.agentReady,
	})
}

func (c *Cluster) internal(name string) []string {
	return []string{c.options.Program, "internal", name, "--state", c.dir.Path()}
}

// lockWait is how long a command waits for another one that changes the same lab.
const lockWait = time.Minute

// lock prevents other commands from changing the lab, and reads what they have changed.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = c.dir.Lock(ctx)
	if errors.Is(err, state.ErrNotFound) {
		return nil, noSuchLab(c.dir.Name())
	} else if err != nil {
		return nil, err
	}
	found, err := loadUp(c.dir)
	if err != nil {
		unlock()
		return nil, err
	}
	c.setCurrent(found)
	return unlock, nil
}
