// Package fabric is the network of a lab: a network namespace for each node and each pod,
// and one that routes between the nodes, as a cloud's network does.
//
// Every link is a veth pair with host routes on both ends, without bridges or shared
// segments, so all traffic between nodes passes the fabric's rules. There it is counted by
// zone, or dropped to simulate a failure. Traffic between pods of a node stays in the node's
// namespace.
//
// All state is in the kernel: Open finds it again, and several commands can use it at once. The
// package never changes the caller's own network namespace: it makes sockets on threads that
// enter a namespace of the lab.
package fabric

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"vicinity.dev/vicinity/lab/shape"
)

// Fabric is the network of a lab.
type Fabric struct {
	shape shape.Shape
}

// Up makes the network of a lab, after it removed leftovers of an earlier lab with the same name. If
// it fails, nothing is left.
func Up(s shape.Shape) (*Fabric, error) {
	f, err := up(s)
	if err != nil {
		return nil, errors.Join(err, Down(s.Name))
	}
	return f, nil
}

func up(s shape.Shape) (*Fabric, error) {
	if err := checkZoneIDs(s); err != nil {
		return nil, err
	}
	if err := Down(s.Name); err != nil {
		return nil, err
	}
	f := &Fabric{shape: s}
	if err := f.makeFabric(); err != nil {
		return nil, fmt.Errorf("making the fabric's network: %w", err)
	}
	if err := f.makeRules(); err != nil {
		return nil, fmt.Errorf("making the fabric's rules: %w", err)
	}
	for _, node := range s.Nodes() {
		if err := f.addNode(node); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Open finds the network of a running lab. The shape is the lab's current one.
func Open(s shape.Shape) (*Fabric, error) {
	f := &Fabric{shape: s}
	if _, err := os.Stat(shape.NamespacePath(f.namespace())); err != nil {
		return nil, fmt.Errorf("opening the network of lab %q: %w; bring the lab up again", s.Name, err)
	}
	return f, nil
}

// Down removes all network namespaces of a lab. Processes in them must be stopped before.
func Down(lab string) error {
	namespaces, err := Namespaces(lab)
	if err != nil {
		return err
	}
	var failed []error
	for _, namespace := range namespaces {
		failed = append(failed, removeNamespace(namespace))
	}
	return errors.Join(failed...)
}

// Namespaces returns the names of all network namespaces of a lab.
func Namespaces(lab string) ([]string, error) {
	entries, err := os.ReadDir(shape.NamespaceFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing the network namespaces of lab %q: %w", lab, err)
	}
	var own []string
	for _, entry := range entries {
		if shape.OwnsNamespace(lab, entry.Name()) {
			own = append(own, entry.Name())
		}
	}
	return own, nil
}

func (f *Fabric) namespace() string { return shape.FabricNamespace(f.shape.Name) }

func (f *Fabric) node(name string) (shape.Node, error) {
	node, ok := f.shape.Node(name)
	if !ok {
		return shape.Node{}, fmt.Errorf("node %q: lab %q has no node of this name with a network", name, f.shape.Name)
	}
	return node, nil
}

func (f *Fabric) nodeNamespace(n shape.Node) string {
	return shape.NodeNamespace(f.shape.Name, n.Index)
}

// The next hop for IPv6 is the same on all links. Unlike in IPv4, the kernel answers neighbour
// discovery only for addresses of the link itself, so it needs an address on the link.
var (
	uplinkV6 = netip.MustParseAddr("fe80::1")
	linkV6   = netip.MustParsePrefix("fe80::1/64")
)

func (f *Fabric) makeFabric() error {
	return makeNamespace(f.namespace(), func(handle *netlink.Handle) error {
		lo, err := handle.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, addr := range f.shape.FabricAddrs() {
			if err := addAddr(handle, lo, hostPrefix(addr)); err != nil {
				return err
			}
		}
		return nil
	})
}

// AddNode adds a node to the network of a running lab.
func (f *Fabric) AddNode(node shape.Node) error {
	changed := f.shape
	if _, ok := changed.Node(node.Name); !ok {
		with, added, err := changed.With(node)
		if err != nil {
			return err
		}
		changed, node = with, added
	}
	if err := checkZoneIDs(changed); err != nil {
		return err
	}
	before := f.shape
	f.shape = changed
	if err := f.addNode(node); err != nil {
		f.shape = before
		return errors.Join(err, f.removeNode(node))
	}
	return nil
}

func (f *Fabric) addNode(node shape.Node) error {
	if err := f.linkNode(node); err != nil {
		return fmt.Errorf("adding node %q to the network: %w", node.Name, err)
	}
	if err := f.addNodeRules(node); err != nil {
		return fmt.Errorf("adding node %q to the fabric's rules: %w", node.Name, err)
	}
	return nil
}

// firstLinkIndex is far above the indices that the kernel assigns to links.
const firstLinkIndex = 1000

func (f *Fabric) linkNode(node shape.Node) error {
	if err := makeNamespace(f.nodeNamespace(node), nil); err != nil {
		return err
	}
	name := shape.NodeLink(node.Index)
	addrs := f.shape.NodeAddrs(node)
	fabricAddrs := f.shape.FabricAddrs()
	err := makeLink(linkSpec{
		upper: f.namespace(), upperName: name, upperIndex: firstLinkIndex + node.Index,
		lower: f.nodeNamespace(node), lowerName: "eth0",
		upperAddrs: fabricAddrs, lowerAddrs: addrs,
	})
	if err != nil {
		return err
	}
	return withHandleIn(f.namespace(), func(handle *netlink.Handle) error {
		device, err := handle.LinkByName(name)
		if err != nil {
			return err
		}
		for i, cidr := range f.shape.NodePodCIDRs(node) {
			if err := addRoute(handle, route{link: device, to: cidr, via: addrs[i], from: sameFamily(fabricAddrs, addrs[i])}); err != nil {
				return err
			}
		}
		return nil
	})
}

// RemoveNode removes a node and its pods from the network of a running lab.
func (f *Fabric) RemoveNode(name string) error {
	node, err := f.node(name)
	if err != nil {
		return err
	}
	if err := f.removeNode(node); err != nil {
		return fmt.Errorf("removing node %q from the network: %w", name, err)
	}
	f.shape = f.shape.Without(name)
	return nil
}

func (f *Fabric) removeNode(node shape.Node) error {
	if err := f.removeNodeRules(node); err != nil {
		return err
	}
	// Removing one end of the link removes the other at once. Removing only the namespace would
	// remove it later.
	err := withHandleIn(f.namespace(), func(handle *netlink.Handle) error {
		return removeLink(handle, shape.NodeLink(node.Index))
	})
	return errors.Join(err, removeNamespace(f.nodeNamespace(node)))
}

// AddPod makes the network of a pod.
func (f *Fabric) AddPod(nodeName, id string, addrs []netip.Addr) error {
	node, err := f.node(nodeName)
	if err != nil {
		return err
	}
	if id == "" || strings.ContainsFunc(id, func(r rune) bool { return !isIDRune(r) }) {
		return fmt.Errorf("pod id %q: write letters, digits and dashes", id)
	}
	namespace := shape.PodNamespace(f.shape.Name, id)
	if err := f.linkPod(node, namespace, id, addrs); err != nil {
		err = fmt.Errorf("giving pod %s on node %q a network: %w", id, nodeName, err)
		return errors.Join(err, f.RemovePod(nodeName, id))
	}
	return nil
}

func isIDRune(r rune) bool {
	return r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func (f *Fabric) linkPod(node shape.Node, namespace, id string, addrs []netip.Addr) error {
	if err := makeNamespace(namespace, nil); err != nil {
		return err
	}
	return makeLink(linkSpec{
		upper: f.nodeNamespace(node), upperName: shape.PodLink(id),
		lower: namespace, lowerName: "eth0",
		upperAddrs: f.shape.NodeAddrs(node), lowerAddrs: addrs,
	})
}

// RemovePod removes the network of a pod, if there is one. The node may have been removed.
func (f *Fabric) RemovePod(nodeName, id string) error {
	var failed error
	if node, ok := f.shape.Node(nodeName); ok {
		failed = withHandleIn(f.nodeNamespace(node), func(handle *netlink.Handle) error {
			return removeLink(handle, shape.PodLink(id))
		})
		if errors.Is(failed, fs.ErrNotExist) {
			failed = nil
		}
	}
	failed = errors.Join(failed, removeNamespace(shape.PodNamespace(f.shape.Name, id)))
	if failed != nil {
		return fmt.Errorf("removing the network of pod %s on node %q: %w", id, nodeName, failed)
	}
	return nil
}

// zoneID returns the number of a zone in the rules. It is derived from the name, so that it stays
// the same when all nodes of a zone are replaced.
func zoneID(zone string) uint32 {
	hash := fnv.New32a()
	hash.Write([]byte(zone))
	return hash.Sum32()
}

func checkZoneIDs(s shape.Shape) error {
	names := map[uint32]string{}
	for _, zone := range s.Zones {
		id := zoneID(zone.Name)
		if other, taken := names[id]; taken {
			return fmt.Errorf("zone %q: its name has the same hash as %q; choose another name", zone.Name, other)
		}
		names[id] = zone.Name
	}
	return nil
}
