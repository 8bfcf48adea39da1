package ruleset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// fakeKernel holds a table and applies transactions. It refuses transactions that Linux refuses, and unnecessary
// changes.
type fakeKernel struct {
	exists bool
	sets   map[string]*fakeSet
	chains map[string]*Chain
}

type fakeSet struct {
	Set
	elements map[string]Element
}

// apply does a transaction, all of it or nothing.
func (k *fakeKernel) apply(t Transaction) error {
	next := k.clone()
	for i, change := range t.Changes {
		if err := next.change(t.Family, change); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	*k = *next
	return nil
}

func (k *fakeKernel) clone() *fakeKernel {
	c := &fakeKernel{exists: k.exists, sets: make(map[string]*fakeSet), chains: maps.Clone(k.chains)}
	for name, set := range k.sets {
		c.sets[name] = &fakeSet{set.Set, maps.Clone(set.elements)}
	}
	if c.chains == nil {
		c.chains = make(map[string]*Chain)
	}
	return c
}

func (k *fakeKernel) change(family Family, c Change) error {
	if c.Kind == DeleteTable {
		*k = *(&fakeKernel{}).clone()
		return nil
	}
	if c.Kind == AddTable {
		if k.exists {
			return errors.New("the table is there")
		}
		k.exists = true
		return nil
	}
	if !k.exists {
		return errors.New("there is no table")
	}
	switch c.Kind {
	case AddSet:
		if k.sets[c.Set.Name] != nil {
			return fmt.Errorf("set %s is there", c.Set.Name)
		}
		k.sets[c.Set.Name] = &fakeSet{*c.Set, make(map[string]Element)}
	case AddChain, ReplaceRules:
		if (k.chains[c.Chain.Name] == nil) != (c.Kind == AddChain) {
			return fmt.Errorf("chain %s: it is there: %t", c.Chain.Name, c.Kind == AddChain)
		}
		if len(c.Chain.Name) > 255 {
			return fmt.Errorf("chain %s: its name is too long", c.Chain.Name)
		}
		made := *c.Chain
		if c.Kind == ReplaceRules {
			made.Base = k.chains[c.Chain.Name].Base
		}
		k.chains[c.Chain.Name] = &made
		return k.checkRules(family, c.Chain)
	case DeleteChain:
		if k.chains[c.Chain.Name] == nil {
			return fmt.Errorf("there is no chain %s", c.Chain.Name)
		}
		delete(k.chains, c.Chain.Name)
		return k.checkUnused(c.Chain.Name, "")
	case DeleteSet:
		if k.sets[c.Set.Name] == nil {
			return fmt.Errorf("there is no set %s", c.Set.Name)
		}
		delete(k.sets, c.Set.Name)
		return k.checkUnused("", c.Set.Name)
	case AddElements, DeleteElements:
		return k.changeElements(family, c)
	default:
		return fmt.Errorf("there is no change of kind %d", c.Kind)
	}
	return nil
}

// checkRules refuses rules that lead to absent chains or sets.
func (k *fakeKernel) checkRules(family Family, c *Chain) error {
	for _, r := range c.Rules {
		if r.Family != family {
			return fmt.Errorf("chain %s: rule of %s", c.Name, r.Family)
		}
		chains, used := references(r)
		for _, name := range chains {
			if k.chains[name] == nil {
				return fmt.Errorf("chain %s leads to chain %s, which is not there", c.Name, name)
			}
		}
		for _, name := range used {
			if k.sets[name] == nil {
				return fmt.Errorf("chain %s leads to set %s, which is not there", c.Name, name)
			}
		}
	}
	return nil
}

// checkUnused refuses to be without a chain or set that something leads to.
func (k *fakeKernel) checkUnused(chain, set string) error {
	for _, c := range k.chains {
		for _, r := range c.Rules {
			if chains, used := references(r); slices.Contains(chains, chain) || slices.Contains(used, set) {
				return fmt.Errorf("%s%s is in use by chain %s", chain, set, c.Name)
			}
		}
	}
	for _, s := range k.sets {
		for _, e := range s.elements {
			if chain != "" && e.Verdict.Chain == chain {
				return fmt.Errorf("chain %s is in use by map %s", chain, s.Name)
			}
		}
	}
	return nil
}

// references are the chains and sets that a rule leads to.
func references(r Rule) (chains, used []string) {
	for _, s := range r.Statements {
		switch s := s.(type) {
		case Decide:
			if s.Verdict.Chain != "" {
				chains = append(chains, s.Verdict.Chain)
			}
		case InSet:
			used = append(used, s.Set)
		case LookUp:
			used = append(used, s.Map)
		case Translate:
			used = append(used, s.Map)
		case Remember:
			used = append(used, s.Map)
		case Recalls:
			used = append(used, s.Map)
		case Unremember:
			used = append(used, s.Map)
		}
	}
	return chains, used
}

func (k *fakeKernel) changeElements(family Family, c Change) error {
	set := k.sets[c.Set.Name]
	if set == nil || !reflect.DeepEqual(set.Set, *c.Set) {
		return fmt.Errorf("there is no such set as %s", c.Set.Name)
	}
	if len(c.Elements) == 0 {
		return fmt.Errorf("set %s: there is nothing to do", c.Set.Name)
	}
	length := func(fields []Field) int {
		n := 0
		for _, f := range fields {
			n += wordLength
			if f == FieldAddress && family == IPv6 {
				n += 16 - wordLength
			}
		}
		return n
	}
	for _, e := range c.Elements {
		_, there := set.elements[e.Key]
		text := family.elementText(c.Set, e)
		switch {
		case c.Kind == DeleteElements && !there:
			return fmt.Errorf("set %s: there is no %s", set.Name, family.KeyText(set.Key, e.Key))
		case c.Kind == DeleteElements:
			delete(set.elements, e.Key)
			continue
		case there:
			return fmt.Errorf("set %s: %s is there", set.Name, text)
		case len(e.Key) != length(set.Key) || len(e.Data) != length(set.Data):
			return fmt.Errorf("set %s: %s has a wrong length", set.Name, text)
		case set.Verdicts != (e.Verdict.Kind != 0):
			return fmt.Errorf("set %s: %s has a verdict: %t", set.Name, text, !set.Verdicts)
		case e.Verdict.Chain != "" && k.chains[e.Verdict.Chain] == nil:
			return fmt.Errorf("set %s: %s leads to a chain that is not there", set.Name, text)
		}
		set.elements[e.Key] = e
	}
	return nil
}

// list returns the kernel's listing.
func (k *fakeKernel) list(family Family) Listing {
	l := Listing{Family: family, Exists: k.exists}
	for _, name := range slices.Sorted(maps.Keys(k.chains)) {
		l.Chains = append(l.Chains, ListedChain{Name: name, Base: k.chains[name].Base, Fingerprints: k.chains[name].Fingerprints()})
	}
	for _, name := range slices.Sorted(maps.Keys(k.sets)) {
		set := k.sets[name]
		listed := ListedSet{Name: name, Fingerprint: set.Fingerprint()}
		if !set.Dynamic {
			for _, key := range slices.Sorted(maps.Keys(set.elements)) {
				listed.Elements = append(listed.Elements, set.elements[key])
			}
		} else {
			for _, e := range set.elements {
				listed.Remembered = append(listed.Remembered, family.TakeTarget(e.Data))
			}
			listed.Remembered = distinct(listed.Remembered)
		}
		l.Sets = append(l.Sets, listed)
	}
	return l
}

// forget does away with what sets remember.
func (k *fakeKernel) forget(family Family, all []Forget) {
	for _, f := range all {
		if set := k.sets[f.Set]; set != nil {
			maps.DeleteFunc(set.elements, func(_ string, e Element) bool {
				return !slices.Contains(f.Keep, family.TakeTarget(e.Data))
			})
		}
	}
}

// check finds packets that are lost without need: packets that pass some rules of before and the others of after.
func (k *fakeKernel) check(before *fakeKernel) error {
	for _, name := range []string{"services", "remember", "firewall", "refused"} {
		if before.sets[name] == nil {
			continue
		}
		for key, e := range before.sets[name].elements {
			if err := k.checkChain(before, key, e.Verdict.Chain); err != nil {
				return fmt.Errorf("%s %x: %w", name, key, err)
			}
		}
	}
	return nil
}

func (k *fakeKernel) checkChain(before *fakeKernel, key, name string) error {
	if name == "" {
		return nil
	}
	if k.chains[name] == nil {
		return fmt.Errorf("chain %s is missing", name)
	}
	for _, rules := range [][]Rule{before.chains[name].Rules, k.chains[name].Rules} {
		for _, r := range rules {
			for _, s := range r.Statements {
				if translate, ok := s.(Translate); ok {
					for slot := range translate.Slots {
						slot += translate.Offset
						if _, ok := k.sets[translate.Map].elements[string(binary.NativeEndian.AppendUint32([]byte(key), slot))]; !ok {
							return fmt.Errorf("%s has no slot %d of %d", translate.Map, slot, translate.Slots)
						}
					}
				}
			}
			chains, used := references(r)
			for _, set := range used {
				if e, ok := before.sets[set].elements[key]; ok && e.Verdict.Chain != "" {
					chains = append(chains, e.Verdict.Chain)
				}
				if k.sets[set] == nil {
					return fmt.Errorf("set %s is missing", set)
				}
			}
			for _, chain := range chains {
				if err := k.checkChain(before, key, chain); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

// packet is the first packet of a connection.
type packet struct {
	source netip.Addr
	front  Front
	// in is the interface that it comes in by, none if it is the node's own.
	in string
	// fromNode means that the source is the node's, toNode that the destination is.
	fromNode, toNode bool
}

// hold reports whether an interface is one of them.
func (i Interfaces) hold(name string) bool {
	return name == i.Name || i.Prefix && strings.HasPrefix(name, i.Name)
}

// outcome is the outcome for a packet.
type outcome struct {
	// target is the destination, the front itself if nothing translated it.
	target     netip.AddrPort
	masquerade bool
	// end is how it ended without a target.
	end string
}

// The ends of packets.
const (
	dropped  = "dropped"
	rejected = "rejected"
	reset    = "reset"
)

// send sends a packet that draws a number.
func (k *fakeKernel) send(p packet, draw uint32) outcome {
	return (&walk{kernel: k, packet: p, draw: draw, target: p.front.own()}).walk()
}

// outcomes returns the possible outcomes of a packet with their probabilities. No set remembers the packet.
func (k *fakeKernel) outcomes(p packet) map[outcome]float64 {
	all := make(map[outcome]float64)
	for b := (&branches{}); ; {
		b.at, b.part = 0, 1
		w := &walk{kernel: k, packet: p, branches: b, target: p.front.own(), unremembered: true}
		all[w.walk()] += b.part
		if !b.next() {
			return all
		}
	}
}

// branches are the numbers that a packet draws, to go through all there are one by one.
type branches struct {
	taken, of []int
	at        int
	part      float64
}

// take draws a number below of. likely returns the probability of each.
func (b *branches) take(of int, likely func(int) float64) int {
	if b.at == len(b.taken) {
		b.taken, b.of = append(b.taken, 0), append(b.of, of)
	}
	one := b.taken[b.at]
	b.at++
	b.part *= likely(one)
	return one
}

// next goes to the next numbers. It is false if there are none.
func (b *branches) next() bool {
	for last := len(b.taken) - 1; last >= 0; last-- {
		if b.taken[last]++; b.taken[last] < b.of[last] {
			return true
		}
		b.taken, b.of = b.taken[:last], b.of[:last]
	}
	return false
}

// walk takes the packet through all hooks.
func (w *walk) walk() outcome {
	hooks := []string{"firewall-prerouting", "nat-prerouting", "remember-prerouting", "refuse-forward"}
	switch {
	case w.fromNode:
		hooks = []string{"firewall-output", "nat-output", "remember-output", "refuse-output"}
	case w.toNode:
		hooks[3] = "refuse-input"
	}
	for i, hook := range hooks {
		if i == 3 && w.translated && hook == "refuse-input" {
			hook = "refuse-forward"
		}
		w.decided = false
		w.run(hook)
		if w.end != "" {
			return outcome{end: w.end}
		}
	}
	w.decided = false
	if !w.toNode || w.translated {
		w.run("nat-postrouting")
	}
	return outcome{target: w.target, masquerade: w.masquerade}
}

// walk is a packet on its way.
type walk struct {
	packet
	kernel     *fakeKernel
	draw       uint32
	branches   *branches // nil if it is draw that is drawn
	target     netip.AddrPort
	translated bool
	masquerade bool
	mark       uint32
	decided    bool // for this hook
	end        string
	// unremembered means that no set remembers the client. forgotten has the maps whose entry a rule would have deleted.
	unremembered bool
	forgotten    []string
}

// share reports whether the packet is among a share of all.
func (w *walk) share(s Draw) bool {
	if w.branches == nil {
		return w.draw%s.Of < s.Share
	}
	return w.branches.take(2, func(other int) float64 {
		share := float64(s.Share) / float64(s.Of)
		if other > 0 {
			return 1 - share
		}
		return share
	}) == 0
}

// slot is the number of a slot that the packet draws.
func (w *walk) slot(slots uint32) uint32 {
	if w.branches == nil {
		return w.draw % slots
	}
	return uint32(w.branches.take(int(slots), func(int) float64 { return 1 / float64(slots) }))
}

// run takes the packet through a chain.
func (w *walk) run(chain string) {
	c := w.kernel.chains[chain]
	if _, optional := hooks[chain]; optional && c == nil {
		return
	}
	if c == nil {
		w.end = "lost in chain " + chain
		return
	}
	for _, r := range c.Rules {
		if w.rule(r) || w.decided || w.end != "" {
			return
		}
	}
}

// rule reports whether the chain is left after it.
func (w *walk) rule(r Rule) bool {
	for _, s := range r.Statements {
		matches := true
		switch s := s.(type) {
		case InPrefix:
			address := w.source
			if s.Value == DestinationAddress {
				address = w.target.Addr()
			}
			matches = s.Prefix.Contains(address) != s.Not
		case InPrefixes:
			matches = within(s.Prefixes, w.source)
		case Draw:
			matches = w.share(s)
		case Recalls:
			e, ok := w.kernel.sets[s.Map].elements[addressKey(w.source)]
			matches = ok && r.Family.TakeTarget(e.Data).Addr() == s.Address
		case Unremember:
			if !w.unremembered {
				delete(w.kernel.sets[s.Map].elements, addressKey(w.source))
			} else {
				w.forgotten = append(w.forgotten, s.Map)
			}
		case InSet:
			_, matches = w.kernel.sets[s.Set].elements[w.key(s.Key)]
		case FromInterface:
			matches = s.Interfaces.hold(w.in) != s.Not
		case FromNode:
			matches = w.fromNode
		case HasProtocol:
			matches = w.front.Protocol == s.Protocol
		case NewConnection:
		case Translated:
			matches = w.translated
		case Marked:
			matches = w.mark&s.Bits == s.Bits
		case SetMark:
			w.mark |= s.Bits
		case FlipMark:
			w.mark ^= s.Bits
		case Masquerade:
			w.masquerade, w.decided = true, true
		case Refuse:
			w.end = rejected
			if s.Reset {
				w.end = reset
			}
		case Decide:
			w.decide(s.Verdict)
			return true
		case LookUp:
			e, ok := w.kernel.sets[s.Map].elements[w.key(s.Key)]
			if !ok {
				return false
			}
			w.decide(e.Verdict)
			return true
		case Translate:
			key := w.key(s.Key)
			if s.Slots > 0 {
				key = string(binary.NativeEndian.AppendUint32([]byte(key), s.Offset+w.slot(s.Slots)))
			}
			e, ok := w.kernel.sets[s.Map].elements[key]
			if !ok || slices.Contains(w.forgotten, s.Map) {
				return false
			}
			w.target, w.translated, w.decided = r.Family.TakeTarget(e.Data), true, true
		case Remember:
			key, elements := addressKey(w.source), w.kernel.sets[s.Map].elements
			if _, there := elements[key]; !w.unremembered && !there {
				elements[key] = Element{Key: key, Data: TargetData(w.target)}
			}
		}
		if !matches || w.decided || w.end != "" {
			return false
		}
	}
	return false
}

func (w *walk) decide(v Verdict) {
	switch v.Kind {
	case VerdictDrop:
		w.end = dropped
	case VerdictGoto:
		w.run(v.Chain)
	}
}

// key returns the key that a rule looks up.
func (w *walk) key(values []Value) string {
	var key []byte
	for _, v := range values {
		switch v {
		case SourceAddress:
			key = appendAddress(key, w.source)
		case DestinationAddress:
			key = appendAddress(key, w.target.Addr())
		case TransportProtocol:
			key = append(key, byte(w.front.Protocol), 0, 0, 0)
		case DestinationPort:
			key = appendPort(key, w.target.Port())
		case OriginalAddress:
			key = appendAddress(key, w.front.Address)
		case OriginalPort:
			key = appendPort(key, w.front.Port)
		}
	}
	return string(key)
}

// bed is a Table with a fake kernel that applies its transactions.
type bed struct {
	*Table
	kernel *fakeKernel
}

func newBed(config Config) *bed {
	return &bed{Table: NewTable(config), kernel: &fakeKernel{}}
}

// failer is a test.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// do applies a Commit.
func (b *bed) do(t failer, c Commit) {
	t.Helper()
	before := b.kernel.clone()
	if err := b.kernel.apply(c.Transaction); err != nil {
		t.Fatal(err)
	}
	if err := b.kernel.check(before); err != nil {
		t.Fatal(err)
	}
	b.kernel.forget(b.config.Family, c.Forget)
	if l := b.kernel.list(b.config.Family); !b.Holds(l) || !b.HoldsShape(l) {
		t.Fatalf("the kernel differs: %v", b.compare(l, true))
	}
}
