package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/state"
)

// Down removes a lab, if it exists, even an incomplete one.
func Down(ctx context.Context, name string, options Options) error {
	options, err := options.complete()
	if err != nil {
		return err
	}
	// Other parts of the lab may exist even if its folder was removed by hand.
	dir, err := state.Create(options.Root, name)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := dir.Claim(waiting)
	if err != nil {
		return err
	}
	defer unlock()
	return remove(dir)
}

// Down removes the lab.
func (c *Cluster) Down(ctx context.Context) error {
	return Down(ctx, c.dir.Name(), c.options)
}

// remove removes a lab whose lock is held. It kills the processes, since their files are deleted
// anyway.
func remove(dir state.Dir) error {
	namespaces, err := ownNamespaces(dir)
	if err != nil {
		return err
	}
	if err := process.StopAll(dir, namespaces...); err != nil {
		return err
	}
	if err := fabric.Down(dir.Name()); err != nil {
		return err
	}
	return dir.Remove()
}

// ownNamespaces returns the network namespaces of a lab. It fails if another lab with the same name,
// in another folder, uses them.
func ownNamespaces(dir state.Dir) ([]string, error) {
	namespaces, err := fabric.Namespaces(dir.Name())
	if err != nil {
		return nil, err
	}
	pids, err := process.Strays(dir, namespaces...)
	if err != nil {
		return nil, err
	}
	own := []byte(process.Marker(dir))
	name, _, _ := bytes.Cut(own, []byte("="))
	for _, pid := range pids {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue // it has ended, or is ending
		}
		for entry := range bytes.SplitSeq(environment, []byte{0}) {
			key, folder, _ := bytes.Cut(entry, []byte("="))
			if bytes.Equal(key, name) && !bytes.Equal(entry, own) {
				return nil, fmt.Errorf("another lab %q is up in %s; set VICINITY_LAB_DIR to that folder, or choose another --name",
					dir.Name(), folder)
			}
		}
	}
	return namespaces, nil
}
