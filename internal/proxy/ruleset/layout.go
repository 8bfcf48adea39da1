package ruleset

import "strconv"

// setID is one of the sets that every table has.
type setID int

// The sets, in the order in which they are made and changed. The maps to verdicts come
// first, so that their numbers are those of the verdicts of an entry.
const (
	setServices setID = iota
	setAffinity
	setRemember
	setFirewall
	setRefused
	setMasqueraded
	setMasqueradedNode
	setSlots
	setLocalSlots
	setClusterIPs
	setHairpin
	setCount
)

// The kinds of those sets.
const (
	verdictMaps = setRefused + 1                          // from the first
	memberships = setMasqueradedNode - setMasqueraded + 1 // from setMasqueraded
	slotMaps    = setLocalSlots - setSlots + 1            // from setSlots
)

// affinitySize is how many clients of a Service port are remembered. Of more, those that
// come later are not until others expire. The kernel may make room for all of them at
// once, which takes it 4 MiB.
const affinitySize = 1 << 18

// frontValues are the key that a packet's destination is looked up by.
var frontValues = []Value{DestinationAddress, TransportProtocol, DestinationPort}

// sets are the sets that every table has, by their numbers.
var sets = func() [setCount]*Set {
	front := fields(frontValues)
	slot := append(fields(frontValues), FieldSlot)
	target := []Field{FieldAddress, FieldPort}
	return [setCount]*Set{
		setServices:        {Name: "services", Key: front, Verdicts: true},
		setAffinity:        {Name: "affinity", Key: front, Verdicts: true},
		setRemember:        {Name: "remember", Key: front, Verdicts: true},
		setFirewall:        {Name: "firewall", Key: front, Verdicts: true},
		setRefused:         {Name: "refused", Key: front, Verdicts: true},
		setMasqueraded:     {Name: "masqueraded", Key: front},
		setMasqueradedNode: {Name: "masqueraded-node", Key: front},
		setSlots:           {Name: "slots", Key: slot, Data: target},
		setLocalSlots:      {Name: "local-slots", Key: slot, Data: target},
		setClusterIPs:      {Name: "cluster-ips", Key: []Field{FieldAddress}},
		setHairpin:         {Name: "hairpin", Key: []Field{FieldAddress, FieldAddress}},
	}
}()

// fields are those of values.
func fields(values []Value) []Field {
	all := make([]Field, len(values))
	for i, v := range values {
		all[i] = v.Field()
	}
	return all
}

// affinitySet is a map from clients to the targets that they stay with.
func affinitySet(name string) *Set {
	return &Set{Name: name, Key: []Field{FieldAddress}, Data: []Field{FieldAddress, FieldPort}, Size: affinitySize}
}

// The chains that other chains and maps lead to in every table.
const (
	serveChain       = "serve"
	refuseChain      = "refuse"
	dropOutsideChain = "drop-outside"
)

// Priorities of the base chains: each is before kube-proxy's, so that a Service that
// both know is this proxy's. Remembering is after the translation that it remembers, and
// sources are looked at before it.
const (
	firewallPriority    = -112
	translatePriority   = -101
	rememberPriority    = -99
	refusePriority      = -1
	postroutingPriority = 99
)

// chains are those that every table has, each after those that it leads to.
func (c Config) chains() []*Chain {
	bit := c.MasqueradeMark
	inFilter := func(name string, hook Hook, priority int, rules ...[]Statement) *Chain {
		return c.chain(name, &Base{Hook: hook, Priority: priority}, rules...)
	}
	translated := []Statement{NewConnection{}, Translated{}, LookUp{Key: []Value{OriginalAddress, TransportProtocol, OriginalPort}, Map: sets[setRemember].Name}}
	guarded := []Statement{NewConnection{}, LookUp{Key: frontValues, Map: sets[setFirewall].Name}}
	unserved := []Statement{NewConnection{}, LookUp{Key: frontValues, Map: sets[setRefused].Name}}
	// What other rules leave untranslated would go to whatever route leads to Services.
	otherPort := []Statement{NewConnection{}, InSet{Key: []Value{DestinationAddress}, Set: sets[setClusterIPs].Name}, leadTo(refuseChain)}
	return []*Chain{
		c.chain(refuseChain, nil,
			[]Statement{HasProtocol{TCP}, Refuse{Reset: true}},
			[]Statement{Refuse{}},
		),
		c.chain(dropOutsideChain, nil, append(c.fromInside(leadTo(refuseChain)), []Statement{Decide{Verdict{Kind: VerdictDrop}}})...),
		c.chain(serveChain, nil, c.serve()...),
		c.chain("nat-prerouting", &Base{NAT: true, Hook: Prerouting, Priority: translatePriority},
			[]Statement{Decide{Verdict{Kind: VerdictJump, Chain: serveChain}}}),
		c.chain("nat-output", &Base{NAT: true, Hook: Output, Priority: translatePriority},
			[]Statement{Decide{Verdict{Kind: VerdictJump, Chain: serveChain}}}),
		c.chain("nat-postrouting", &Base{NAT: true, Hook: Postrouting, Priority: postroutingPriority},
			[]Statement{Marked{bit}, FlipMark{bit}, Masquerade{}},
			[]Statement{Translated{}, InSet{Key: []Value{SourceAddress, DestinationAddress}, Set: sets[setHairpin].Name}, Masquerade{}},
		),
		inFilter("firewall-prerouting", Prerouting, firewallPriority, guarded),
		inFilter("firewall-output", Output, firewallPriority, guarded),
		inFilter("remember-prerouting", Prerouting, rememberPriority, translated),
		inFilter("remember-output", Output, rememberPriority, translated),
		inFilter("refuse-input", Input, refusePriority, unserved),
		inFilter("refuse-forward", Forward, refusePriority, unserved, otherPort),
		inFilter("refuse-output", Output, refusePriority, unserved, otherPort),
	}
}

// serve are the rules that translate.
func (c Config) serve() [][]Statement {
	mark := SetMark{c.MasqueradeMark}
	rules := [][]Statement{
		{InSet{Key: frontValues, Set: sets[setMasqueraded].Name}, mark},
		{InSet{Key: frontValues, Set: sets[setMasqueradedNode].Name}, FromNode{}, mark},
	}
	toService := InSet{Key: []Value{DestinationAddress}, Set: sets[setClusterIPs].Name}
	if c.MasqueradeAll {
		rules = append(rules, []Statement{toService, mark})
	} else if fromElsewhere := c.fromPods(true); len(fromElsewhere) > 0 {
		rules = append(rules, append(fromElsewhere, toService, mark))
	}
	return append(rules,
		[]Statement{LookUp{Key: frontValues, Map: sets[setAffinity].Name}},
		[]Statement{LookUp{Key: frontValues, Map: sets[setServices].Name}},
	)
}

// chain makes a chain of rules.
func (c Config) chain(name string, base *Base, rules ...[]Statement) *Chain {
	made := &Chain{Name: name, Base: base, Rules: make([]Rule, len(rules))}
	for i, statements := range rules {
		made.Rules[i] = Rule{Family: c.Family, Statements: statements}
	}
	return made
}

// pick chooses one of so many slots. A packet that finds its slot empty is dropped: it
// must not leave for an address that nothing answers at.
func (c Config) pick(name string, slotMap setID, count uint32) *Chain {
	return c.chain(name, nil,
		[]Statement{Translate{Key: frontValues, Slots: count, Map: sets[slotMap].Name}},
		[]Statement{Decide{Verdict{Kind: VerdictDrop}}},
	)
}

// split sends traffic of pods and of the node to one pool, and all other to another. A
// pool without endpoints takes nothing, so that its traffic is refused.
func (c Config) split(name string, cluster, local uint32) *Chain {
	rules := c.fromInside(leadToPick(clusterPrefix, cluster))
	if local > 0 {
		rules = append(rules, []Statement{leadToPick(localPrefix, local)})
	}
	return c.chain(name, nil, rules...)
}

// fromInside are rules that decide on traffic of pods and of the node.
func (c Config) fromInside(decision Decide) [][]Statement {
	var rules [][]Statement
	for _, fromPod := range c.fromPods(false) {
		rules = append(rules, []Statement{fromPod, decision})
	}
	return append(rules, []Statement{FromNode{}, decision})
}

// leadTo goes on in a chain.
func leadTo(chain string) Decide {
	return Decide{Verdict{Kind: VerdictGoto, Chain: chain}}
}

// leadToPick chooses among slots, if there are any.
func leadToPick(prefix string, count uint32) Decide {
	if count == 0 {
		return Decide{Verdict{Kind: VerdictReturn}}
	}
	return leadTo(prefix + strconv.FormatUint(uint64(count), 10))
}
