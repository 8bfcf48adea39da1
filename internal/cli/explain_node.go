package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// machine is the machine that runs the command, which may be a node of the cluster.
type machine struct {
	addresses func() ([]netip.Addr, error)
	// rules opens the rules in the kernel.
	rules func() (rulesOfNode, error)
	// pause waits before the next comparison.
	pause func(context.Context, time.Duration) error
}

type rulesOfNode interface {
	Read(family ruleset.Family) (ruleset.Listing, error)
	Close() error
}

func thisMachine() machine {
	return machine{addresses: interfaceAddresses, rules: openRules, pause: command.Pause}
}

// interfaceAddresses returns those of the program's network namespace.
func interfaceAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of interfaces: %w", err)
	}
	var all []netip.Addr
	for _, address := range found {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			all = append(all, prefix.Addr().Unmap())
		}
	}
	return all, nil
}

// A difference may be a change that is on its way to the kernel, so it must last over several
// readings.
const (
	nodeLooks     = 4
	nodeLookAgain = time.Second
)

func (f *explainFlags) runNode(ctx context.Context, s command.Streams, reach connector, here machine, name string) error {
	connected, err := reach(&f.cluster)
	if err != nil {
		return err
	}
	var document *inspect.NodeExplanation
	for look := 1; ; look++ {
		r := &clusterReader{connection: connected, now: time.Now()}
		if document, err = r.explainNode(ctx, name, f.node, here); err != nil {
			return err
		}
		if len(document.Kernel.Differences) == 0 || look == nodeLooks {
			break
		}
		if err := here.pause(ctx, nodeLookAgain); err != nil {
			return err
		}
	}
	if err := f.output.write(s.Out, document, func(p *page) { writeNode(p, document) }); err != nil {
		return err
	}
	if n := len(document.Kernel.Differences); n > 0 {
		return fmt.Errorf("the kernel of node %s differs from the rules: %s", f.node, count(int64(n), "difference", "differences"))
	}
	return nil
}

// explainNode reads the cluster, and the kernel if this machine is the node.
func (r *clusterReader) explainNode(ctx context.Context, name, nodeName string, here machine) (*inspect.NodeExplanation, error) {
	in, err := r.readNode(ctx, name, nodeName)
	if err != nil {
		return nil, err
	}
	if in.Local, err = here.addresses(); err != nil {
		return nil, err
	}
	why := elsewhere(in.Node, in.Local)
	if in.Settings.NodePorts.ByPrefix() && why != "" {
		in.Local = nodenet.Addresses(in.Node)
		r.leaveOut("the addresses of the node's interfaces are known only there; the addresses in its Node object are used instead")
	}
	in.Unread, in.Now = r.unread, r.now
	e := inspect.ExplainNode(in)
	if e.ServedBy == "kube-proxy" {
		consumers, err := r.consumers(ctx)
		if err != nil {
			return nil, err
		}
		if others := e.ServedInstead(consumers); others != "" {
			r.leaveOut("which endpoints " + others + " chooses on the node")
		}
	}
	e.Kernel = compared(e, here, why)
	e.NotKnown = r.notKnown
	return e, nil
}

// elsewhere says why this machine is not the node, or is empty.
func elsewhere(node *corev1.Node, local []netip.Addr) string {
	own := nodenet.Addresses(node)
	if slices.ContainsFunc(own, func(a netip.Addr) bool { return slices.Contains(local, a) }) {
		return ""
	}
	return fmt.Sprintf("this machine has no address of node %s; run the command on the node, as root", node.Name)
}

func compared(e *inspect.NodeExplanation, here machine, why string) inspect.Kernel {
	if why != "" {
		return inspect.Kernel{Why: why}
	}
	rules, err := here.rules()
	if err != nil {
		return inspect.Kernel{Why: fmt.Sprintf("only root with the capability NET_ADMIN may read the rules (%s)", command.OneLine(err))}
	}
	k := inspect.Kernel{Compared: true}
	for _, family := range ruleset.Families {
		listing, readErr := rules.Read(family)
		if err = errors.Join(err, readErr); readErr == nil {
			k.Differences = append(k.Differences, e.Differences(listing)...)
		}
	}
	if err = errors.Join(err, rules.Close()); err != nil {
		return inspect.Kernel{Why: "the rules cannot be read: " + command.OneLine(err)}
	}
	return k
}
