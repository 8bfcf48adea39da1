package cri

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// Arguments of host.Self.
const (
	keepCommand   = "container"
	becomeCommand = "become"
)

// command returns the command of one of the package's processes. Its environment marks it as the
// lab's.
func (r *host) command(args ...string) *exec.Cmd {
	args = slices.Concat(r.Self, args)
	cmd := exec.Command(args[0], args[1:]...)
	// One thread is enough.
	cmd.Env = append(os.Environ(), r.marker, "GOMAXPROCS=1", "GOGC=50")
	cmd.Stderr = os.Stderr
	return cmd
}

type host struct {
	// State is the lab's state folder.
	State  state.Dir
	Images Images
	// Self is the command to which the names of this package's own processes are appended.
	Self   []string
	Log    *slog.Logger
	marker string
	// starts limits how many containers start at the same time.
	starts chan struct{}

	nodes map[string]*node
}

// Run serves the kubelets of a lab until the context ends. The containers continue to run, and
// the next Run adopts them.
func Run(ctx context.Context, d state.Dir) error {
	lab, err := d.Load()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	r := &host{
		State:  d,
		Images: Images{Program: program, Folder: filepath.Dir(program), Others: lab.Images, Store: image.Store{Folder: d.Images()}},
		Self:   []string{program, "internal"}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), marker: process.Marker(d),
		starts: make(chan struct{}, 8), nodes: map[string]*node{},
	}
	if err := os.MkdirAll(d.Nodes(), 0o700); err != nil {
		return err
	}
	if err := r.holdMounts(lab.Shape); err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	d.Follow(ctx, r.Log, func(lab state.Lab) { r.setNodes(ctx, lab.Shape, &work) })
	return nil
}

// setNodes serves new nodes of the shape, and ends the containers of removed ones.
func (r *host) setNodes(ctx context.Context, s shape.Shape, work *sync.WaitGroup) {
	for name, n := range r.nodes {
		if _, ok := s.Node(name); !ok {
			delete(r.nodes, name)
			n.remove()
		}
	}
	for _, one := range s.Nodes() {
		if r.nodes[one.Name] != nil {
			continue
		}
		n, err := newNode(r, s, one)
		if err == nil {
			err = n.serve(ctx, work)
		}
		if err != nil {
			r.Log.Error("node cannot be served", "node", one.Name, "error", err)
			continue
		}
		r.nodes[one.Name] = n
	}
	r.removeOrphans(s)
}

// removeOrphans cleans up after nodes that were removed while no runtime ran.
func (r *host) removeOrphans(s shape.Shape) {
	records, err := readSandboxes(r.State)
	if err != nil {
		r.Log.Error("records of sandboxes cannot be read", "error", err)
	}
	for _, record := range records {
		if _, ok := s.Node(record.Node.Name); ok {
			continue
		}
		n, err := newNode(r, s, record.Node)
		if err != nil {
			r.Log.Error("leftovers of a removed node cannot be removed", "node", record.Node.Name, "error", err)
			return
		}
		n.remove()
	}
}
