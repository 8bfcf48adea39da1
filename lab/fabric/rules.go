package fabric

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
)

// The fabric's rules, as nft would list them:
//
//	table inet vicinity-lab {
//		map zones { type ifname : mark }                                # of each link
//		set same { type mark . mark }                                   # each zone with itself
//		set cut-nodes { type ifname }
//		set cut-zones { type mark }
//		set traffic { type mark . mark; flags dynamic; counter }
//		chain forward {
//			type filter hook forward priority filter
//			iifname @cut-nodes drop
//			oifname @cut-nodes drop
//			FROM @cut-zones FROM . TO != @same drop
//			TO @cut-zones FROM . TO != @same drop
//			update @traffic { FROM . TO counter }
//		}
//		chain input {
//			type filter hook input priority filter
//			icmpv6 type 133-137 accept                              # neighbour discovery
//			iifname @cut-nodes drop
//			FROM @cut-zones drop
//		}
//		chain output {
//			type filter hook output priority filter
//			icmpv6 type 133-137 accept                              # neighbour discovery
//			oifname @cut-nodes drop
//			TO @cut-zones drop
//		}
//	}
//
// FROM is iifname map @zones, and TO is oifname map @zones. Packets are dropped silently, as in a
// network that is cut. The sets hold the state of cuts, so that any command finds it.

var table = nftables.Table{Family: nftables.TableFamilyINet, Name: "vicinity-lab"}

// The registers of the rules: a link's name takes four words, a zone one.
const (
	nameRegister = unix.NFT_REG_2
	fromRegister = unix.NFT_REG32_00
	toRegister   = unix.NFT_REG32_01
	nameLength   = 16
)

type rules struct {
	table *nftables.Table

	zones, same, cutNodes, cutZones, traffic *nftables.Set
}

func newRules() rules {
	own := table
	pair := nftables.MustConcatSetType(nftables.TypeMark, nftables.TypeMark)
	set := func(name string, key nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: &own, Name: name, KeyType: key, KeyByteOrder: binaryutil.NativeEndian}
	}
	r := rules{
		table:    &own,
		zones:    set("zones", nftables.TypeIFName),
		same:     set("same", pair),
		cutNodes: set("cut-nodes", nftables.TypeIFName),
		cutZones: set("cut-zones", nftables.TypeMark),
		traffic:  set("traffic", pair),
	}
	r.zones.IsMap, r.zones.DataType = true, nftables.TypeMark
	r.same.Concatenation, r.traffic.Concatenation = true, true
	r.traffic.Dynamic, r.traffic.Counter, r.traffic.Size = true, true, 1<<20
	return r
}

// inRules calls a function with a connection to the rules of the fabric, and commits the queued
// changes in one transaction.
func (f *Fabric) inRules(change func(*nftables.Conn, rules) error) error {
	return InNamespace(f.namespace(), func() error { return onRules(change) })
}

func onRules(change func(*nftables.Conn, rules) error) error {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return withRemedy(err)
	}
	defer func() { _ = conn.CloseLasting() }()
	if err := change(conn, newRules()); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return withRemedy(err)
	}
	return nil
}

func tryRules() error { return onRules(addRules) }

func (f *Fabric) makeRules() error { return f.inRules(addRules) }

func addRules(conn *nftables.Conn, r rules) error {
	conn.AddTable(r.table)
	for _, set := range []*nftables.Set{r.zones, r.same, r.cutNodes, r.cutZones, r.traffic} {
		if err := conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("making the set %s: %w", set.Name, err)
		}
	}
	chain := func(name string, hook *nftables.ChainHook, rules ...[]expr.Any) {
		made := conn.AddChain(&nftables.Chain{
			Table: r.table, Name: name, Type: nftables.ChainTypeFilter,
			Hooknum: hook, Priority: nftables.ChainPriorityFilter,
		})
		for _, exprs := range rules {
			conn.AddRule(&nftables.Rule{Table: r.table, Chain: made, Exprs: exprs})
		}
	}
	from := r.zoneOf(expr.MetaKeyIIFNAME, fromRegister)
	to := r.zoneOf(expr.MetaKeyOIFNAME, toRegister)
	different := notInSet(r.same, fromRegister)
	fromCut := rule(loadLinkName(expr.MetaKeyIIFNAME), inSet(r.cutNodes, nameRegister), drop())
	toCut := rule(loadLinkName(expr.MetaKeyOIFNAME), inSet(r.cutNodes, nameRegister), drop())

	chain("forward", nftables.ChainHookForward,
		fromCut,
		toCut,
		rule(from, inSet(r.cutZones, fromRegister), to, different, drop()),
		rule(to, inSet(r.cutZones, toRegister), from, different, drop()),
		rule(from, to, []expr.Any{&expr.Dynset{
			SrcRegKey: fromRegister, SetName: r.traffic.Name, SetID: r.traffic.ID,
			Operation: unix.NFT_DYNSET_OP_UPDATE, Exprs: []expr.Any{&expr.Counter{}},
		}}),
	)
	// Packets of IPv6 neighbour discovery pass these chains. If they were dropped, senders would
	// get errors instead of silent loss.
	neighbours := rule(neighbourDiscovery(), accept())
	chain("input", nftables.ChainHookInput,
		neighbours,
		fromCut,
		rule(from, inSet(r.cutZones, fromRegister), drop()),
	)
	chain("output", nftables.ChainHookOutput,
		neighbours,
		toCut,
		rule(to, inSet(r.cutZones, toRegister), drop()),
	)
	return nil
}

func rule(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

func loadLinkName(key expr.MetaKey) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: nameRegister}}
}

// zoneOf loads the zone of a link. The rule does not match links without a zone.
func (r rules) zoneOf(key expr.MetaKey, register uint32) []expr.Any {
	return rule(loadLinkName(key), lookUp(r.zones, nameRegister, register))
}

func lookUp(set *nftables.Set, key, value uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{
		SourceRegister: key, DestRegister: value, IsDestRegSet: true, SetName: set.Name, SetID: set.ID,
	}}
}

// inSet matches if a register is in a set, notInSet if it is not.
func inSet(set *nftables.Set, register uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID}}
}

func notInSet(set *nftables.Set, register uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID, Invert: true}}
}

func drop() []expr.Any   { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }
func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func neighbourDiscovery() []expr.Any {
	const first, last = 133, 137
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nameRegister},
		&expr.Cmp{Op: expr.CmpOpEq, Register: nameRegister, Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: nameRegister, Base: expr.PayloadBaseTransportHeader, Len: 1},
		&expr.Cmp{Op: expr.CmpOpGte, Register: nameRegister, Data: []byte{first}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: nameRegister, Data: []byte{last}},
	}
}

func linkKey(node shape.Node) []byte {
	key := make([]byte, nameLength)
	copy(key, shape.NodeLink(node.Index))
	return key
}

func zoneKey(zone string) []byte { return binaryutil.NativeEndian.PutUint32(zoneID(zone)) }

func pairKey(from, to string) []byte { return slices.Concat(zoneKey(from), zoneKey(to)) }

func (f *Fabric) addNodeRules(node shape.Node) error {
	return f.inRules(func(conn *nftables.Conn, r rules) error {
		return errors.Join(
			conn.SetAddElements(r.zones, []nftables.SetElement{{Key: linkKey(node), Val: zoneKey(node.Zone)}}),
			conn.SetAddElements(r.same, []nftables.SetElement{{Key: pairKey(node.Zone, node.Zone)}}),
		)
	})
}

func (f *Fabric) removeNodeRules(node shape.Node) error {
	return f.inRules(func(conn *nftables.Conn, r rules) error {
		return errors.Join(
			removeElement(conn, r.zones, linkKey(node)),
			removeElement(conn, r.cutNodes, linkKey(node)),
		)
	})
}

// removeElement removes a key from a set if it exists; a missing key would fail the whole transaction.
func removeElement(conn *nftables.Conn, set *nftables.Set, key []byte) error {
	elements, err := conn.GetSetElements(set)
	if err != nil {
		return fmt.Errorf("reading the set %s: %w", set.Name, err)
	}
	for _, element := range elements {
		if slices.Equal(element.Key, key) {
			return conn.SetDeleteElements(set, []nftables.SetElement{{Key: element.Key, Val: element.Val}})
		}
	}
	return nil
}
