package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// fakeKernel holds tables as a kernel does: it applies a transaction as a whole or not at all, and refuses an invalid
// one.
type fakeKernel struct {
	mu     sync.Mutex
	tables map[ruleset.Family]*fakeTable
	// refuses returns errors in addition to those of a kernel.
	refuses func(ruleset.Transaction) error
	// costs is called for each transaction, also a refused one. It may advance the clock.
	costs func(ruleset.Transaction)
	// unreadable is the error of reads.
	unreadable error
	// takes is called during a transaction. It may advance the clock.
	takes        func()
	interference ruleset.Interference
	// reads and shapes count the reads. applied has the transactions.
	reads, shapes int
	applied       []ruleset.Transaction
	forgotten     []ruleset.Forget
	// unforgetful is the error of Forget.
	unforgetful error
}

type fakeTable struct {
	chains map[string][]string // fingerprints
	bases  map[string]*ruleset.Base
	sets   map[string]*fakeSet
}

type fakeSet struct {
	print    string
	dynamic  bool
	size     int
	elements map[string]ruleset.Element // by key
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{tables: map[ruleset.Family]*fakeTable{}, refuses: func(ruleset.Transaction) error { return nil }, costs: func(ruleset.Transaction) {}, takes: func() {}}
}

func (t *fakeTable) clone() *fakeTable {
	if t == nil {
		return nil
	}
	c := &fakeTable{chains: maps.Clone(t.chains), bases: maps.Clone(t.bases), sets: map[string]*fakeSet{}}
	for name, set := range t.sets {
		c.sets[name] = &fakeSet{set.print, set.dynamic, set.size, maps.Clone(set.elements)}
	}
	return c
}

func (k *fakeKernel) Apply(_ context.Context, t ruleset.Transaction) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.costs(t)
	if err := k.refuses(t); err != nil {
		return err
	}
	table := k.tables[t.Family].clone()
	for i, c := range t.Changes {
		var err error
		if table, err = table.change(c); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	k.takes()
	k.tables[t.Family] = table
	k.applied = append(k.applied, t)
	return nil
}

var errNotThere = errors.New("there is no such thing")

func (t *fakeTable) change(c ruleset.Change) (*fakeTable, error) {
	switch c.Kind {
	case ruleset.DeleteTable:
		return nil, nil
	case ruleset.AddTable:
		if t == nil {
			t = &fakeTable{chains: map[string][]string{}, bases: map[string]*ruleset.Base{}, sets: map[string]*fakeSet{}}
		}
		return t, nil
	}
	if t == nil {
		return nil, errNotThere
	}
	switch c.Kind {
	case ruleset.AddSet:
		t.sets[c.Set.Name] = &fakeSet{c.Set.Fingerprint(), c.Set.Dynamic, c.Set.Size, map[string]ruleset.Element{}}
	case ruleset.DeleteSet:
		if t.sets[c.Set.Name] == nil {
			return nil, fmt.Errorf("set %s: %w", c.Set.Name, errNotThere)
		}
		delete(t.sets, c.Set.Name)
	case ruleset.AddChain:
		t.chains[c.Chain.Name], t.bases[c.Chain.Name] = c.Chain.Fingerprints(), c.Chain.Base
	case ruleset.ReplaceRules, ruleset.DeleteChain:
		if _, found := t.chains[c.Chain.Name]; !found {
			return nil, fmt.Errorf("chain %s: %w", c.Chain.Name, errNotThere)
		}
		t.chains[c.Chain.Name] = c.Chain.Fingerprints()
		if c.Kind == ruleset.DeleteChain {
			delete(t.chains, c.Chain.Name)
		}
	case ruleset.AddElements, ruleset.DeleteElements:
		set := t.sets[c.Set.Name]
		if set == nil {
			return nil, fmt.Errorf("set %s: %w", c.Set.Name, errNotThere)
		}
		for _, e := range c.Elements {
			have, found := set.elements[e.Key]
			switch {
			case c.Kind == ruleset.DeleteElements && !found:
				return nil, fmt.Errorf("element %x of %s: %w", e.Key, c.Set.Name, errNotThere)
			case c.Kind == ruleset.DeleteElements:
				delete(set.elements, e.Key)
			case found && have != e:
				return nil, fmt.Errorf("element %x of %s is there with another value", e.Key, c.Set.Name)
			default:
				set.elements[e.Key] = e
			}
		}
	}
	return t, nil
}

func (k *fakeKernel) Read(number ruleset.Family) (ruleset.Listing, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reads++
	return k.list(number, true)
}

func (k *fakeKernel) Shape(number ruleset.Family) (ruleset.Listing, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shapes++
	return k.list(number, false)
}

func (k *fakeKernel) list(number ruleset.Family, elements bool) (ruleset.Listing, error) {
	listing := ruleset.Listing{Family: number}
	table := k.tables[number]
	if table == nil || k.unreadable != nil {
		return listing, k.unreadable
	}
	listing.Exists = true
	for _, name := range slices.Sorted(maps.Keys(table.chains)) {
		listing.Chains = append(listing.Chains, ruleset.ListedChain{Name: name, Base: table.bases[name], Fingerprints: table.chains[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(table.sets)) {
		set := table.sets[name]
		listed := ruleset.ListedSet{Name: name, Fingerprint: set.print}
		if elements && !set.dynamic {
			for _, key := range slices.Sorted(maps.Keys(set.elements)) {
				listed.Elements = append(listed.Elements, set.elements[key])
			}
		}
		listing.Sets = append(listing.Sets, listed)
	}
	return listing, nil
}

func (k *fakeKernel) Interference() (ruleset.Interference, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := k.interference
	k.interference = ruleset.NoInterference
	return found, k.unreadable
}

func (k *fakeKernel) Forget(_ ruleset.Family, all []ruleset.Forget) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgotten = append(k.forgotten, all...)
	return k.unforgetful
}

// do makes a foreign change of the table of IPv4. A nil change stands for so many changes of other tables that their
// notices are lost.
func (k *fakeKernel) do(change func(*fakeTable)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := ruleset.PossibleInterference
	if change != nil {
		change(k.tables[ruleset.IPv4])
		found = ruleset.Interfered
	}
	k.interference = max(k.interference, found)
}

// transactions returns the number of applied transactions.
func (k *fakeKernel) transactions() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.applied)
}

// leads reports whether the kernel leads connections to an endpoint.
func (k *fakeKernel) leads(endpoint string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	table := k.tables[ruleset.IPv4]
	if table == nil || table.sets["slots"] == nil {
		return false
	}
	for _, e := range table.sets["slots"].elements {
		if touches(ruleset.Transaction{Changes: []ruleset.Change{{Elements: []ruleset.Element{{Data: e.Data}}}}}, endpoint) {
			return true
		}
	}
	return false
}
