package ruleset

// setID identifies a set that every table has.
type setID int

// The sets, in the order of their changes. Maps to verdicts come first, as in entry.verdicts.
const (
	setServices setID = iota
	setRemember
	setFirewall
	setRefused
	setSlots
	setLocalSlots
	setClusterIPs
	setHairpin
	setCount
)

// The kinds of those sets.
const (
	verdictMaps = setRefused + 1               // from the first
	slotMaps    = setLocalSlots - setSlots + 1 // from setSlots
)

// frontValues is the key of lookups by a packet's front.
var frontValues = []Value{DestinationAddress, TransportProtocol, DestinationPort}

// sets are the sets that every table has, by their numbers.
var sets = func() [setCount]*Set {
	front := fields(frontValues)
	slot := append(fields(frontValues), FieldSlot)
	target := []Field{FieldAddress, FieldPort}
	return [setCount]*Set{
		setServices:   {Name: "services", Key: front, Verdicts: true},
		setRemember:   {Name: "remember", Key: front, Verdicts: true},
		setFirewall:   {Name: "firewall", Key: front, Verdicts: true},
		setRefused:    {Name: "refused", Key: front, Verdicts: true},
		setSlots:      {Name: "slots", Key: slot, Data: target},
		setLocalSlots: {Name: "local-slots", Key: slot, Data: target},
		setClusterIPs: {Name: "cluster-ips", Key: []Field{FieldAddress}},
		setHairpin:    {Name: "hairpin", Key: []Field{FieldAddress, FieldAddress}},
	}
}()

func fields(values []Value) []Field {
	all := make([]Field, len(values))
	for i, v := range values {
		all[i] = v.Field()
	}
	return all
}

// affinitySet returns a map from clients to their targets. A full map remembers no more clients until others expire. The
// default map has no size: for a map with a size, the kernel allocates room for all clients at once.
func (c Config) affinitySet(name string) *Set {
	set := &Set{Name: name, Key: []Field{FieldAddress}, Data: []Field{FieldAddress, FieldPort}, Dynamic: true}
	if c.MaxAffinityClients < MostAffinityClients {
		set.Size = c.MaxAffinityClients
	}
	return set
}

// The chains that maps lead to in every table.
const (
	refuseChain      = "refuse"
	dropOutsideChain = "drop-outside"
)

// Each priority is just before kube-proxy's, so that vicinity-proxy serves a Service that both know. Sources are checked
// before the translation, and clients are remembered after it.
const (
	firewallPriority    = -112
	translatePriority   = -101
	rememberPriority    = -99
	refusePriority      = -1
	postroutingPriority = 99
)

// chains returns the chains that every table has, each after the chains that it leads to.
func (c Config) chains() []*Chain {
	bit := c.MasqueradeMark
	serve := []Statement{LookUp{Key: frontValues, Map: sets[setServices].Name}}
	unserved := []Statement{NewConnection{}, LookUp{Key: frontValues, Map: sets[setRefused].Name}}
	refuse := append([][]Statement{unserved}, c.refuseOthers()...)
	return []*Chain{
		c.chain(refuseChain, nil,
			[]Statement{HasProtocol{TCP}, Refuse{Reset: true}},
			[]Statement{Refuse{}},
		),
		c.chain(dropOutsideChain, nil, append(c.fromInside(leadTo(refuseChain)), []Statement{Decide{Verdict{Kind: VerdictDrop}}})...),
		c.chain("nat-prerouting", &Base{NAT: true, Hook: Prerouting, Priority: translatePriority}, serve),
		c.chain("nat-output", &Base{NAT: true, Hook: Output, Priority: translatePriority}, serve),
		c.chain("nat-postrouting", &Base{NAT: true, Hook: Postrouting, Priority: postroutingPriority},
			[]Statement{Marked{bit}, FlipMark{bit}, Masquerade{}},
			[]Statement{Translated{}, InSet{Key: []Value{SourceAddress, DestinationAddress}, Set: sets[setHairpin].Name}, Masquerade{}},
		),
		c.chain("refuse-input", &Base{Hook: Input, Priority: refusePriority}, unserved),
		c.chain("refuse-forward", &Base{Hook: Forward, Priority: refusePriority}, refuse...),
		c.chain("refuse-output", &Base{Hook: Output, Priority: refusePriority}, refuse...),
	}
}

// refuseOthers returns rules for packets that still have a cluster IP as their destination after translation. Such packets
// would follow a route to cluster IPs. Other ports of a Service are refused, and unassigned addresses dropped.
func (c Config) refuseOthers() [][]Statement {
	rules := [][]Statement{{NewConnection{}, InSet{Key: []Value{DestinationAddress}, Set: sets[setClusterIPs].Name}, leadTo(refuseChain)}}
	for _, p := range c.ServiceRanges {
		rules = append(rules, []Statement{NewConnection{}, InPrefix{Value: DestinationAddress, Prefix: p}, Decide{Verdict{Kind: VerdictDrop}}})
	}
	return rules
}

// Base chains that exist only while needed, since every packet of the node passes them.
var hooks = map[string]struct {
	base Base
	rule []Statement
}{
	"firewall-prerouting": {Base{Hook: Prerouting, Priority: firewallPriority}, lookUpFirewall},
	"firewall-output":     {Base{Hook: Output, Priority: firewallPriority}, lookUpFirewall},
	"remember-prerouting": {Base{Hook: Prerouting, Priority: rememberPriority}, lookUpRemember},
	"remember-output":     {Base{Hook: Output, Priority: rememberPriority}, lookUpRemember},
}

// firewallHooks are needed for fronts with sources, rememberHooks for sticky ports.
var (
	firewallHooks = []string{"firewall-prerouting", "firewall-output"}
	rememberHooks = []string{"remember-prerouting", "remember-output"}
)

// The rules of hooks.
var (
	lookUpFirewall = []Statement{NewConnection{}, LookUp{Key: frontValues, Map: sets[setFirewall].Name}}
	lookUpRemember = []Statement{NewConnection{}, Translated{}, LookUp{
		Key: []Value{OriginalAddress, TransportProtocol, OriginalPort}, Map: sets[setRemember].Name,
	}}
)

func (c Config) chain(name string, base *Base, rules ...[]Statement) *Chain {
	made := &Chain{Name: name, Base: base, Rules: make([]Rule, len(rules))}
	for i, statements := range rules {
		made.Rules[i] = Rule{Family: c.Family, Statements: statements}
	}
	return made
}

// pick translates to a random slot, and drops the packet if the slot is empty.
func (c Config) pick(p *part) *Chain {
	slots := sets[setSlots+setID(p.pool())].Name
	return c.chain(p.name, nil,
		[]Statement{Translate{Key: frontValues, Slots: p.count, Offset: p.offset, Map: slots}},
		[]Statement{Decide{Verdict{Kind: VerdictDrop}}},
	)
}

// draw leads remembered clients of a sticky port to their targets, and chooses a pick chain for all others. It does not
// look up slots itself: each rule that does makes every slot more expensive for the kernel.
func (c Config) draw(p *part) *Chain {
	rules := c.markRules(p.treatment)
	if p.memory != nil {
		rules = append(rules, p.memory.recall()...)
	}
	return c.chain(p.name, nil, append(rules, p.shapes[p.pool()].choose(p.pool())...)...)
}

// markRules returns the rules that mark packets to masquerade.
func (c Config) markRules(t treatment) [][]Statement {
	mark := SetMark{c.MasqueradeMark}
	switch {
	case t == treatPlain:
		return nil
	case t == treatMasquerade || c.MasqueradeAll:
		return [][]Statement{{mark}}
	}
	if fromElsewhere := c.fromPods(true); len(fromElsewhere) > 0 {
		return [][]Statement{append(fromElsewhere, mark)}
	}
	return nil
}

// split leads traffic of pods and of the node to the cluster pool, and other traffic to the local pool. Traffic for a pool
// without endpoints is refused later.
func (c Config) split(p *part) *Chain {
	inside, outside := p.drawNames()
	fromNode := []Statement{FromNode{}}
	if inside != "" {
		fromNode = append(fromNode, SetMark{c.MasqueradeMark})
	}
	rules := [][]Statement{append(fromNode, leadToDraw(inside))}
	for _, fromPod := range c.fromPods(false) {
		rules = append(rules, []Statement{fromPod, leadToDraw(inside)})
	}
	if outside != "" {
		rules = append(rules, []Statement{leadTo(outside)})
	}
	return c.chain(p.name, nil, rules...)
}

// remember adds clients of a sticky port to the map of their pool.
func (c Config) remember(p *part) *Chain {
	into := func(memory string) Remember { return Remember{Map: memory, Timeout: p.timeout} }
	memories := p.memories()
	if len(memories) == 1 {
		return c.chain(p.name, nil, []Statement{into(memories[0])})
	}
	var rules [][]Statement
	for _, from := range c.insideStatements() {
		rules = append(rules, []Statement{from, into(memories[0]), Decide{Verdict{Kind: VerdictReturn}}})
	}
	return c.chain(p.name, nil, append(rules, []Statement{into(memories[1])})...)
}

func (c Config) guard(p *part) *Chain {
	var rules [][]Statement
	if len(p.sources) > 0 {
		rules = append(rules, []Statement{InPrefixes{Value: SourceAddress, Prefixes: p.sources}, Decide{Verdict{Kind: VerdictReturn}}})
	}
	return c.chain(p.name, nil, append(rules, []Statement{Decide{Verdict{Kind: VerdictDrop}}})...)
}

// insideStatements returns statements: traffic of pods and of the node matches one of them.
func (c Config) insideStatements() []Statement {
	return append(c.fromPods(false), FromNode{})
}

// fromInside returns rules with a decision for traffic of pods and of the node.
func (c Config) fromInside(decision Decide) [][]Statement {
	var rules [][]Statement
	for _, from := range c.insideStatements() {
		rules = append(rules, []Statement{from, decision})
	}
	return rules
}

// leadTo continues in a chain.
func leadTo(chain string) Decide {
	return Decide{Verdict{Kind: VerdictGoto, Chain: chain}}
}

// leadToDraw continues in a chain, or returns without one.
func leadToDraw(chain string) Decide {
	if chain == "" {
		return Decide{Verdict{Kind: VerdictReturn}}
	}
	return leadTo(chain)
}
