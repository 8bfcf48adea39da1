package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Apply carries out a transaction atomically. A packet that is being processed may see the table before and then after it.
// New chains come first, see stages.
//
// If the kernel does not permit so long a transaction, Apply carries it out in parts. The kernel limits only processes
// without CAP_NET_ADMIN in the first user namespace.
//
// A *Refusal means that the kernel has changed nothing. After any other error, Read the kernel's state.
func (c *Conn) Apply(ctx context.Context, t ruleset.Transaction) error {
	if t.Empty() {
		return nil
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var err error
	if sizeOf(t) < bulkThreshold {
		err = c.apply(ctx, ruleset.TableName, t)
	} else {
		c.withoutNotices(func() { err = c.apply(ctx, ruleset.TableName, t) })
	}
	if err != nil {
		return fmt.Errorf("changing table %s %s: %w", t.Family, ruleset.TableName, err)
	}
	return nil
}

func sizeOf(t ruleset.Transaction) int {
	n := 0
	for i := range t.Changes {
		n += len(t.Changes[i].Elements)
	}
	return n
}

// apply changes a table with any name.
func (c *Conn) apply(ctx context.Context, table string, t ruleset.Transaction) error {
	first, rest := stages(t)
	if len(first) == 0 {
		return c.applySome(ctx, table, t, rest)
	}
	if err := c.applySome(ctx, table, t, first); err != nil {
		return err
	}
	err := c.applySome(ctx, table, t, rest)
	var refusal *Refusal
	if err == nil || !errors.As(err, &refusal) && ctx.Err() == nil {
		return err
	}
	// The added chains are of no use without the rest.
	back := undo(t, first)
	if left := c.applySome(context.WithoutCancel(ctx), table, back, allIndexes(back)); left != nil {
		// This is no Refusal: the kernel has done a part.
		return errors.New(err.Error() + "; the chains and sets that it added first stay: " + left.Error())
	}
	return err
}

// applySome carries out some changes of a transaction.
func (c *Conn) applySome(ctx context.Context, table string, t ruleset.Transaction, changes []int) error {
	m := &c.asker.Messages
	m.Reset()
	reserve(m, t)
	defer m.Release()
	e := encoder{messages: m, name: table, family: t.Family, origins: make([]origin, 1)}
	beginBatch(m)
	for _, i := range changes {
		if err := e.change(i, &t.Changes[i]); err != nil {
			return err
		}
	}
	endBatch(m)
	err := c.commit(ctx, m, func(message int) bool { return e.canSplit(t, message) })
	var f *netlink.Failure
	if !errors.As(err, &f) {
		return err
	}
	refusal := e.refusal(t, f)
	if errors.As(err, &partly{}) {
		// A Refusal would claim that the kernel has done nothing.
		return fmt.Errorf("%s: %w, after a part of the transaction was done", refusal.What, f)
	}
	return refusal
}

// canSplit reports whether a transaction may begin with a message. A chain stays whole: the kernel keeps the unnamed
// sets of its ranges only together with a rule.
func (e *encoder) canSplit(t ruleset.Transaction, message int) bool {
	change := e.origins[message].change
	kind := t.Changes[change].Kind
	return kind == ruleset.AddElements || kind == ruleset.DeleteElements || change != e.origins[message-1].change
}

// reserve allocates memory for the elements of a transaction.
func reserve(m *netlink.Messages, t ruleset.Transaction) {
	const headers = 6 * unix.SizeofNlAttr
	room := 0
	for i := range t.Changes {
		elements := t.Changes[i].Elements
		room += len(elements) * headers
		for j := range elements {
			e := &elements[j]
			room += len(e.Key) + len(e.Data) + len(e.Verdict.Chain)
		}
	}
	m.Bytes = slices.Grow(m.Bytes, room)
}

type encoder struct {
	messages *netlink.Messages
	name     string // of the table
	family   ruleset.Family
	// origins has the change of each message. The first message begins the batch.
	origins []origin
	// sets counts the added sets, which have numbers within a transaction.
	sets uint32
}

// origin is the change of a message, and the index of its first element.
type origin struct {
	change, element int
}

func (e *encoder) begin(o origin, kind, flags uint16) {
	e.origins = append(e.origins, o)
	e.messages.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, familyNumber(e.family), 0)
}

func (e *encoder) change(index int, c *ruleset.Change) error {
	o := origin{change: index}
	switch c.Kind {
	case ruleset.AddTable:
		e.table(o, unix.NFT_MSG_NEWTABLE)
	case ruleset.DeleteTable:
		// Deleting a missing table is an error. Adding an existing one is not.
		e.table(o, unix.NFT_MSG_NEWTABLE)
		e.table(o, unix.NFT_MSG_DELTABLE)
	case ruleset.AddSet:
		e.addSet(o, c.Set)
	case ruleset.DeleteSet:
		e.named(o, unix.NFT_MSG_DELSET, [2]uint16{unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME}, c.Set.Name)
	case ruleset.AddChain:
		e.addChain(o, c.Chain)
		return e.rules(o, c.Chain)
	case ruleset.DeleteChain:
		e.named(o, unix.NFT_MSG_DELCHAIN, [2]uint16{unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME}, c.Chain.Name)
	case ruleset.ReplaceRules:
		e.named(o, unix.NFT_MSG_DELRULE, [2]uint16{unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN}, c.Chain.Name)
		return e.rules(o, c.Chain)
	case ruleset.AddElements:
		e.elements(o, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, c)
	case ruleset.DeleteElements:
		e.elements(o, unix.NFT_MSG_DELSETELEM, 0, c)
	default:
		return fmt.Errorf("change %d has the unknown kind %d", index, c.Kind)
	}
	return nil
}

// named writes a message with the name of a set or a chain and nothing else.
func (e *encoder) named(o origin, kind uint16, attributes [2]uint16, name string) {
	e.begin(o, kind, 0)
	e.messages.Name(attributes[0], e.name)
	e.messages.Name(attributes[1], name)
	e.messages.End()
}

func (e *encoder) table(o origin, kind uint16) {
	e.begin(o, kind, unix.NLM_F_CREATE)
	e.messages.Name(unix.NFTA_TABLE_NAME, e.name)
	e.messages.End()
}

// addChain writes a chain without its rules.
func (e *encoder) addChain(o origin, chain *ruleset.Chain) {
	m := e.messages
	e.begin(o, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	m.Name(unix.NFTA_CHAIN_TABLE, e.name)
	m.Name(unix.NFTA_CHAIN_NAME, chain.Name)
	if base := chain.Base; base != nil {
		hook := m.Nest(unix.NFTA_CHAIN_HOOK)
		m.Number32(unix.NFTA_HOOK_HOOKNUM, uint32(base.Hook))
		m.Number32(unix.NFTA_HOOK_PRIORITY, uint32(int32(base.Priority)))
		m.EndNest(hook)
		kind := "filter"
		if base.NAT {
			kind = "nat"
		}
		m.Name(unix.NFTA_CHAIN_TYPE, kind)
	}
	m.End()
}

// rules writes the rules of a chain, each with its fingerprint.
func (e *encoder) rules(o origin, chain *ruleset.Chain) error {
	if len(chain.Rules) == 0 {
		return nil
	}
	prints := chain.Fingerprints()
	for i := range chain.Rules {
		m := e.messages
		sets := e.ranges(o, chain.Rules[i].Statements)
		e.begin(o, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		m.Name(unix.NFTA_RULE_TABLE, e.name)
		m.Name(unix.NFTA_RULE_CHAIN, chain.Name)
		list := m.Nest(unix.NFTA_RULE_EXPRESSIONS)
		if err := (&rule{messages: m, family: e.family, sets: sets}).write(chain.Rules[i].Statements); err != nil {
			return fmt.Errorf("rule %d of chain %s: %w", i+1, chain.Name, err)
		}
		m.EndNest(list)
		m.Raw(unix.NFTA_RULE_USERDATA, comment(ruleComment, prints[i]))
		m.End()
	}
	return nil
}

// familyNumber is the kernel's number of a family.
func familyNumber(family ruleset.Family) uint8 {
	if family == ruleset.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}
