package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"time"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// upTime limits how long bringing a lab up may take, with upTimePerNode added for each fake node.
// removalTimeout limits a removal.
const (
	upTime         = 3 * time.Minute
	upTimePerNode  = 50 * time.Millisecond
	removalTimeout = time.Minute
)

// Up brings a lab up. It first removes leftovers of an earlier lab of the same name, and fails if
// the lab is up. If it fails, it removes the lab, unless Options.Keep is set. It installs neither
// Vicinity nor a DNS server: InstallVicinity and InstallDNS do.
func Up(ctx context.Context, s shape.Shape, options Options) (*Cluster, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := options.Images.Validate(); err != nil {
		return nil, err
	}
	kubernetes, err := options.kubernetes()
	if err != nil {
		return nil, err
	}
	if err := checkPrerequisites(s, options); err != nil {
		return nil, err
	}
	c := &Cluster{options: options, kubernetes: kubernetes}
	c.setCurrent(state.Lab{Kubernetes: kubernetes, Created: time.Now().UTC(), Shape: s, Images: options.Images, NextIndex: s.NextIndex()})
	dir, unlock, err := claim(ctx, s.Name, options)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c.dir = dir
	limited, cancel := context.WithTimeout(ctx, upTime+time.Duration(s.FakeNodes)*upTimePerNode)
	defer cancel()
	err = c.bringUp(limited)
	switch {
	case err == nil:
		return c, nil
	case options.Keep:
		return nil, fmt.Errorf("%w; --keep keeps %s", err, dir.Path())
	}
	return nil, errors.Join(err, remove(dir))
}

// checkPrerequisites returns an error with a remedy if the machine lacks a prerequisite.
func checkPrerequisites(s shape.Shape, options Options) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a lab needs Linux, and this is %s; run it in a virtual machine", runtime.GOOS)
	}
	if s.Proxy.Vicinity() {
		if program := options.programPath(proxyImage); !isProgram(program) {
			return fmt.Errorf("proxy %q: there is no program %s; make build builds it, or write %s or %s",
				s.Proxy, program, shape.ProxyKubeProxy, shape.ProxyNone)
		}
	}
	if s.ControlPlaneOnly {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("a lab makes network namespaces, which needs root; run it with sudo, or without a network with --control-plane-only")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return fmt.Errorf("a lab needs the program nft: %w; install the package nftables", err)
	}
	return fabric.Check()
}

// claim makes and locks the state folder of a lab, and removes leftovers of an earlier run.
func claim(ctx context.Context, name string, options Options) (state.Dir, func(), error) {
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		dir, err := state.Create(options.Root, name)
		if err != nil {
			return state.Dir{}, nil, err
		}
		unlock, err := dir.Claim(waiting)
		if err != nil {
			return state.Dir{}, nil, err
		}
		found, err := hasLeftovers(dir)
		if err == nil && !found {
			return dir, unlock, nil
		}
		if err == nil {
			fmt.Fprintf(options.Log, "removing leftovers of an earlier run of lab %s\n", name)
			err = remove(dir)
		}
		// The lock was removed with the folder: take it again.
		unlock()
		if err != nil {
			return state.Dir{}, nil, err
		}
	}
}

// hasLeftovers reports whether anything of a lab exists. It fails if the lab is up.
func hasLeftovers(dir state.Dir) (bool, error) {
	found, err := dir.Load()
	known := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, nil // unreadable: its writer was interrupted
	}
	namespaces, err := ownNamespaces(dir)
	if err != nil {
		return false, err
	}
	strays, err := process.Strays(dir, namespaces...)
	if err != nil {
		return false, err
	}
	if known && found.Up && len(strays) > 0 {
		return false, fmt.Errorf("lab %q is up already; vicinity lab status shows it, vicinity lab down removes it", dir.Name())
	}
	return known || len(namespaces) > 0 || len(strays) > 0, nil
}

// bringUp makes all parts of a lab in order, and waits until it works.
func (c *Cluster) bringUp(ctx context.Context) error {
	now := c.current()
	var err error
	if now.Port, err = c.choosePort(ctx); err != nil {
		return err
	}
	if err := c.save(now); err != nil {
		return err
	}
	if !c.Shape().ControlPlaneOnly {
		if err := c.makeNetwork(); err != nil {
			return err
		}
	}
	begun := time.Now()
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	if err := plane.Start(ctx); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := client.Apply(ctx, "", clusterManifests); err != nil {
		return err
	}
	if !c.Shape().ControlPlaneOnly {
		if err := client.Apply(ctx, "", storageManifests); err != nil {
			return err
		}
	}
	c.logf("control plane answers after %.1f s", time.Since(begun).Seconds())

	begun = time.Now()
	if err := c.startNodes(ctx, plane); err != nil {
		return err
	}
	if err := plane.StartProxies(); err != nil {
		return err
	}
	if err := plane.Wait(ctx); err != nil {
		return err
	}
	if err := client.WaitNodes(ctx, true, c.nodeNames()...); err != nil {
		return err
	}
	ready := "nodes are ready"
	if !c.Shape().ControlPlaneOnly && c.Shape().Proxy.KubeProxy() {
		ready += " and Services answer"
	}
	c.logf("%s after %.1f s", ready, time.Since(begun).Seconds())
	now.Up = true
	return c.save(now)
}

func (c *Cluster) makeNetwork() error {
	begun := time.Now()
	if _, err := fabric.Up(c.Shape()); err != nil {
		return err
	}
	c.logf("network is there after %.1f s", time.Since(begun).Seconds())
	return nil
}

func (c *Cluster) nodeNames() []string {
	var names []string
	for _, node := range append(c.Shape().Nodes(), c.Shape().FakeNodeList()...) {
		names = append(names, node.Name)
	}
	return names
}

func (c *Cluster) logf(format string, args ...any) {
	fmt.Fprintf(c.options.Log, format+"\n", args...)
}

// choosePort finds ports of 127.0.0.1 that are neither in use nor another lab's.
func (c *Cluster) choosePort(ctx context.Context) (int, error) {
	dirs, err := state.List(c.options.Root)
	if err != nil {
		return 0, err
	}
	var others []int
	for _, dir := range dirs {
		if other, err := dir.Load(); err == nil && dir != c.dir {
			others = append(others, other.Port)
		}
	}
	return controlplane.FreePort(ctx, c.dir.Name(), others...)
}
