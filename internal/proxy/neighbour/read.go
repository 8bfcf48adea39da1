package neighbour

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"vicinity.dev/vicinity/internal/proxy/kernel"
)

// Sources are where a node is read from.
type Sources struct {
	// Proc is what is below /proc.
	Proc fs.FS
	// Links names the interfaces, and Chains lists those of nftables.
	Links  func() ([]string, error)
	Chains func() ([]kernel.Chain, error)
}

// Read reads what there is on a node. What cannot be read is left out, and told by the error.
func Read(s Sources, allServices bool) (Node, error) {
	n := Node{AllServices: allServices}
	var errs []error
	var err error
	if n.Links, err = s.Links(); err != nil {
		errs = append(errs, fmt.Errorf("listing interfaces: %w", err))
	}
	slices.Sort(n.Links)
	if n.Chains, err = s.Chains(); err != nil {
		errs = append(errs, err)
	}
	for _, one := range []struct{ file, program string }{{"ip_tables_names", "iptables"}, {"ip6_tables_names", "ip6tables"}} {
		content, err := fs.ReadFile(s.Proc, "net/"+one.file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("reading the tables of %s: %w", one.program, err))
		}
		for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
			if lines.Text() != "" {
				n.Legacy = append(n.Legacy, one.program+" "+lines.Text())
			}
		}
	}
	return n, errors.Join(errs...)
}
