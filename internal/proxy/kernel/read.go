package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Read lists a family's table consistently. Changes do not wait for it. If any table changes meanwhile, Read starts
// again, a few times.
func (c *Conn) Read(family ruleset.Family) (ruleset.Listing, error) {
	return c.list(family, true)
}

// Shape lists a family's table without the elements of sets, which is cheap.
func (c *Conn) Shape(family ruleset.Family) (ruleset.Listing, error) {
	return c.list(family, false)
}

// listTimes bounds the attempts of a listing.
const listTimes = 8

func (c *Conn) list(family ruleset.Family, elements bool) (ruleset.Listing, error) {
	c.lists.Lock()
	defer c.lists.Unlock()
	if c.lists.closed {
		return ruleset.Listing{}, net.ErrClosed
	}
	a := &c.lists.Asker
	var listing ruleset.Listing
	err := netlink.Again(listTimes, func() error {
		before, err := readGeneration(a)
		if err != nil {
			return err
		}
		r := reader{asker: a, listing: ruleset.Listing{Family: family}, strings: make(map[string]string)}
		if err := r.read(elements); err != nil {
			return err
		}
		after, err := readGeneration(a)
		if err != nil {
			return err
		}
		if before != after {
			return netlink.ErrChanged
		}
		listing = r.listing
		return nil
	})
	if err != nil {
		return ruleset.Listing{}, fmt.Errorf("listing table %s %s: %w", family, ruleset.TableName, err)
	}
	return listing, nil
}

type reader struct {
	asker   *netlink.Asker
	listing ruleset.Listing
	// strings interns strings: many occur very often.
	strings map[string]string
}

func (r *reader) read(elements bool) error {
	err := r.ask(unix.NFT_MSG_GETTABLE, 0, [2]uint16{unix.NFTA_TABLE_NAME}, "", func(content []byte) {
		r.listing.Flagged = netlink.Count(netlink.Attribute(content, unix.NFTA_TABLE_FLAGS)) != 0
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return err
	}
	r.listing.Exists = true
	if err := r.chains(); err != nil {
		return err
	}
	kinds, err := r.sets()
	if err != nil || !elements {
		return err
	}
	for i := range r.listing.Sets {
		set, read := &r.listing.Sets[i], r.elements
		switch kinds[i] {
		case setForeign:
			continue
		case setOfClients:
			read = r.readTargets
		}
		if err := read(set); err != nil {
			return fmt.Errorf("elements of %s: %w", set.Name, err)
		}
	}
	return nil
}

// ask requests the table, or an object in it with a name. names are the attributes of both names.
func (r *reader) ask(kind, flags uint16, names [2]uint16, name string, each func(content []byte)) error {
	return r.asker.Ask(func(m *netlink.Messages) {
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, familyNumber(r.listing.Family), 0)
		m.Name(names[0], ruleset.TableName)
		if name != "" {
			m.Name(names[1], name)
		}
	}, each)
}

func (r *reader) intern(b []byte) string {
	if s, ok := r.strings[string(b)]; ok {
		return s
	}
	s := string(b)
	r.strings[s] = s
	return s
}

// chains lists the chains with the fingerprints of their rules.
func (r *reader) chains() error {
	places := make(map[string]int)
	err := r.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, [2]uint16{unix.NFTA_CHAIN_TABLE}, "", func(content []byte) {
		// The kernel lists the chains of all tables.
		if netlink.Text(netlink.Attribute(content, unix.NFTA_CHAIN_TABLE)) == ruleset.TableName {
			chain := listedChain(content)
			places[chain.Name] = len(r.listing.Chains)
			r.listing.Chains = append(r.listing.Chains, chain)
		}
	})
	if err != nil {
		return fmt.Errorf("chains: %w", err)
	}
	err = r.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, [2]uint16{unix.NFTA_RULE_TABLE}, "", func(content []byte) {
		if netlink.Text(netlink.Attribute(content, unix.NFTA_RULE_TABLE)) != ruleset.TableName {
			return
		}
		if at, ok := places[netlink.Text(netlink.Attribute(content, unix.NFTA_RULE_CHAIN))]; ok {
			chain := &r.listing.Chains[at]
			chain.Fingerprints = append(chain.Fingerprints, commented(ruleComment, netlink.Attribute(content, unix.NFTA_RULE_USERDATA)))
		}
	})
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return nil
}

// listedChain reads a chain without its rules.
func listedChain(content []byte) ruleset.ListedChain {
	listed := ruleset.ListedChain{Name: netlink.Text(netlink.Attribute(content, unix.NFTA_CHAIN_NAME))}
	hook := netlink.Attribute(content, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return listed
	}
	kind, policy := netlink.Text(netlink.Attribute(content, unix.NFTA_CHAIN_TYPE)), netlink.Attribute(content, unix.NFTA_CHAIN_POLICY)
	listed.Base = &ruleset.Base{
		NAT:      kind == "nat",
		Hook:     ruleset.Hook(netlink.Count(netlink.Attribute(hook, unix.NFTA_HOOK_HOOKNUM))),
		Priority: int(int32(netlink.Count(netlink.Attribute(hook, unix.NFTA_HOOK_PRIORITY)))),
	}
	listed.ForeignBase = kind != "nat" && kind != "filter" || policy != nil && netlink.Count(policy) == netfilterDrop
	return listed
}

// setKind decides how the elements of a set are read.
type setKind int

// Sets of the proxy, sets that packets add to, and foreign sets.
const (
	setOfOurs setKind = iota
	setOfClients
	setForeign
)

func kindOf(flags uint32) setKind {
	switch {
	case flags&unix.NFT_SET_INTERVAL != 0:
		return setForeign
	case flags&unix.NFT_SET_EVAL != 0:
		return setOfClients
	}
	return setOfOurs
}

func (r *reader) sets() (kinds []setKind, err error) {
	err = r.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, [2]uint16{unix.NFTA_SET_TABLE}, "", func(content []byte) {
		flags := netlink.Count(netlink.Attribute(content, unix.NFTA_SET_FLAGS))
		if netlink.Text(netlink.Attribute(content, unix.NFTA_SET_TABLE)) != ruleset.TableName || flags&unix.NFT_SET_ANONYMOUS != 0 {
			return // unnamed sets are parts of rules
		}
		r.listing.Sets = append(r.listing.Sets, ruleset.ListedSet{
			Name:        netlink.Text(netlink.Attribute(content, unix.NFTA_SET_NAME)),
			Fingerprint: commented(setComment, netlink.Attribute(content, unix.NFTA_SET_USERDATA)),
		})
		kinds = append(kinds, kindOf(flags))
	})
	if err != nil {
		return nil, fmt.Errorf("sets: %w", err)
	}
	return kinds, nil
}

func (r *reader) elements(set *ruleset.ListedSet) error {
	seen := make(map[string]struct{})
	err := r.eachElement(set.Name, func(e ruleset.Element) {
		seen[e.Key] = struct{}{}
		set.Elements = append(set.Elements, e)
	})
	if err != nil {
		return err
	}
	// Some time after a set has grown, the kernel moves it to a larger table. It lists sets in pieces, so during the move
	// some elements come twice and others not at all.
	if len(seen) < len(set.Elements) {
		return netlink.ErrChanged
	}
	return nil
}

// readTargets lists the targets in a map that packets add to. Clients that are added meanwhile have targets of the rules.
func (r *reader) readTargets(set *ruleset.ListedSet) error {
	seen := make(map[string]bool)
	err := r.eachElement(set.Name, func(e ruleset.Element) { seen[e.Data] = true })
	if errors.Is(err, netlink.ErrChanged) {
		err = nil // clients come and go
	}
	for _, data := range slices.Sorted(maps.Keys(seen)) {
		if target := r.listing.Family.TakeTarget(data); target.IsValid() {
			set.Remembered = append(set.Remembered, target)
		}
	}
	return err
}

func (r *reader) eachElement(set string, each func(ruleset.Element)) error {
	names := [2]uint16{unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET}
	return r.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, names, set, func(content []byte) {
		for _, one := range netlink.Attributes(netlink.Attribute(content, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			each(r.element(one))
		}
	})
}

func (r *reader) element(content []byte) ruleset.Element {
	e := ruleset.Element{Key: string(netlink.Attribute(netlink.Attribute(content, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE))}
	for kind, data := range netlink.Attributes(netlink.Attribute(content, unix.NFTA_SET_ELEM_DATA)) {
		switch kind {
		case unix.NFTA_DATA_VALUE:
			e.Data = r.intern(data)
		case unix.NFTA_DATA_VERDICT:
			e.Verdict = r.verdict(data)
		}
	}
	return e
}

func (r *reader) verdict(content []byte) ruleset.Verdict {
	var v ruleset.Verdict
	switch int32(netlink.Count(netlink.Attribute(content, unix.NFTA_VERDICT_CODE))) {
	case netfilterDrop:
		v.Kind = ruleset.VerdictDrop
	case unix.NFT_GOTO:
		v.Kind = ruleset.VerdictGoto
	case unix.NFT_RETURN:
		v.Kind = ruleset.VerdictReturn
	}
	v.Chain = r.intern(bytes.TrimSuffix(netlink.Attribute(content, unix.NFTA_VERDICT_CHAIN), []byte{0}))
	return v
}
