// Package lab runs a real multi-zone Kubernetes on this machine, and is how commands
// and tests use one.
//
// Up makes a lab and returns when its nodes are ready and its Services answer: state
// folder, fabric, control plane, agent and proxies, in the order they need. All of it
// outlives the process that called Up. Open finds a lab that runs, from what its state
// folder says, so a Cluster is as good in one process as in another, and Down removes
// whatever there is, also of a lab that was interrupted in the middle.
//
// The parts are made by the packages below this one: shape says what a lab looks like,
// state where it keeps its files, process what runs, fabric is the network,
// controlplane etcd and Kubernetes, agent the nodes, program what containers run, and
// load what clients do.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// Options are what making and finding a lab depends on besides its shape. The zero
// Options are those of a user on the command line.
type Options struct {
	// Root is the folder of the folders of labs; empty is state.DefaultRoot.
	Root string
	// Program is the vicinity program, by which a lab runs its own processes; empty
	// is the one that is running.
	Program string
	// Kubernetes is the built lab/kubernetes; empty is the one that the lab was brought
	// up with. For a new lab that is vicinity-kubernetes beside Program, or else what
	// VICINITY_KUBERNETES says.
	Kubernetes string
	// Log is told in a line what is being done; nil for nobody.
	Log io.Writer
	// Keep leaves what there is of a lab that could not be brought up.
	Keep bool
}

// complete fills in what is empty.
func (o Options) complete() (Options, error) {
	var err error
	if o.Root == "" {
		if o.Root, err = state.DefaultRoot(); err != nil {
			return o, err
		}
	}
	if o.Program == "" {
		if o.Program, err = os.Executable(); err != nil {
			return o, fmt.Errorf("finding the vicinity program: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o, nil
}

// kubernetes finds the built lab/kubernetes for a new lab. Links are followed: what
// beside Program is called vicinity-kubernetes may be another release tomorrow.
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
	return "", fmt.Errorf("there is no Kubernetes program at %s; build it by make kubernetes, or say where it is by --kubernetes or VICINITY_KUBERNETES",
		candidates[0])
}

// kubernetesOf finds the built lab/kubernetes for a lab that is there: unless the user
// names another, the one that the lab was brought up with, while it exists.
func (o Options) kubernetesOf(found state.Lab) (string, error) {
	if o.Kubernetes == "" && isProgram(found.Kubernetes) {
		return found.Kubernetes, nil
	}
	return o.kubernetes()
}

// Cluster is a lab that is up.
type Cluster struct {
	options    Options
	kubernetes string
	dir        state.Dir

	mu    sync.Mutex
	known state.Lab // as it was when this process last looked

	clientOnce sync.Once
	client     *Client
	clientErr  error
}

// Open finds a lab that is up.
func Open(name string, options Options) (*Cluster, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	dir, err := state.Open(options.Root, name)
	if errors.Is(err, state.ErrNotFound) {
		return nil, missing(name)
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

// loadUp reads what a lab says about itself, if it is up.
func loadUp(dir state.Dir) (state.Lab, error) {
	found, err := dir.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return state.Lab{}, err
	}
	if !found.Up {
		return state.Lab{}, fmt.Errorf("lab %q is not up; vicinity lab up brings it up, and removes first what is left of it", dir.Name())
	}
	return found, nil
}

// missing says that there is no lab.
func missing(name string) error {
	return fmt.Errorf("there is no lab %q; bring it up by vicinity lab up", name)
}

// Names are those of all labs, whether they are up or not.
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

// Shape is what the lab looks like now.
func (c *Cluster) Shape() shape.Shape { return c.lab().Shape }

// lab is what the lab says about itself, as far as this process knows.
func (c *Cluster) lab() state.Lab {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// know takes in what the lab says about itself now.
func (c *Cluster) know(now state.Lab) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = now
}

// save changes what the lab says about itself.
func (c *Cluster) save(now state.Lab) error {
	if err := c.dir.Save(now); err != nil {
		return err
	}
	c.know(now)
	return nil
}

// Options are those that the lab was found by.
func (c *Cluster) Options() Options { return c.options }

// Kubeconfig is the path of the administrator's kubeconfig, for use on the host.
func (c *Cluster) Kubeconfig() string { return c.dir.Kubeconfig() }

// Client talks to the API as the administrator.
func (c *Cluster) Client() (*Client, error) {
	c.clientOnce.Do(func() { c.client, c.clientErr = newClient(c.dir.Kubeconfig()) })
	return c.client, c.clientErr
}

// network is the lab's fabric, where it has one.
func (c *Cluster) network() (*fabric.Fabric, error) {
	s := c.Shape()
	if s.ControlPlaneOnly {
		return nil, fmt.Errorf("lab %q is only a control plane and has no network", s.Name)
	}
	return fabric.Open(s)
}

// controlPlane is what runs the lab's components.
func (c *Cluster) controlPlane() (*controlplane.ControlPlane, error) {
	now := c.lab()
	return controlplane.New(controlplane.Config{
		Dir:     c.dir,
		Shape:   now.Shape,
		Port:    now.Port,
		Program: c.kubernetes,
		Gateway: c.internal("gateway"),
	})
}

// internal is the command line of one of the lab's own processes.
func (c *Cluster) internal(name string, args ...string) []string {
	return append([]string{c.options.Program, "lab", "internal", name, "--state", c.dir.Path()}, args...)
}

// lockWait is how long to wait for another command that changes the same lab.
const lockWait = time.Minute

// lock keeps other commands from changing the lab, and finds out what they changed
// before.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = c.dir.Lock(ctx)
	if errors.Is(err, state.ErrNotFound) {
		return nil, missing(c.dir.Name())
	} else if err != nil {
		return nil, err
	}
	found, err := loadUp(c.dir)
	if err != nil {
		unlock()
		return nil, err
	}
	c.know(found)
	return unlock, nil
}

// running reports whether anything of a lab runs that its records know of.
func running(dir state.Dir) (bool, error) {
	processes, err := process.List(dir)
	if err != nil {
		return false, err
	}
	for _, p := range processes {
		if p.Alive() {
			return true, nil
		}
	}
	return false, nil
}

// version is that of this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}
