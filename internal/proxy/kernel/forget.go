package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// forgetAtOnce bounds the deleted elements of one transaction. Even a small transaction takes milliseconds, and the kernel
// reports only some hundred failures of one.
const forgetAtOnce = 500

// Forget deletes remembered clients of removed endpoints. A map may have very many clients, so others can use the connection
// between its steps.
func (c *Conn) Forget(family ruleset.Family, all []ruleset.Forget) error {
	var errs []error
	for _, f := range all {
		if err := c.forget(family, f); err != nil {
			errs = append(errs, fmt.Errorf("forgetting clients in map %s of table %s %s: %w", f.Set, family, ruleset.TableName, err))
		}
	}
	return errors.Join(errs...)
}

var errComing = errors.New("packets keep adding clients")

func (c *Conn) forget(family ruleset.Family, f ruleset.Forget) error {
	keep := make(map[string]bool, len(f.Keep))
	for _, target := range f.Keep {
		keep[ruleset.TargetData(target)] = true
	}
	// The kernel lists a map in pieces, and skips some elements while others expire.
	for range listTimes {
		clients, err := c.clients(family, f.Set, keep)
		if len(clients) == 0 || err != nil {
			return err
		}
		for part := range slices.Chunk(clients, forgetAtOnce) {
			if err := c.deleteClients(family, f.Set, part); err != nil {
				return err
			}
		}
	}
	return errComing
}

// clients lists the elements of a map whose data is not in keep.
func (c *Conn) clients(family ruleset.Family, name string, keep map[string]bool) ([]ruleset.Element, error) {
	c.lists.Lock()
	defer c.lists.Unlock()
	var clients []ruleset.Element
	r := reader{asker: &c.lists.Asker, listing: ruleset.Listing{Family: family}, strings: make(map[string]string)}
	err := netlink.Again(listTimes, func() error {
		clients = nil
		return r.eachElement(name, func(e ruleset.Element) {
			if !keep[e.Data] {
				clients = append(clients, ruleset.Element{Key: e.Key})
			}
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // the map or the table is deleted
	}
	return clients, err
}

// deleteClients deletes elements of a map. If some have expired since they were listed, the kernel deletes none and reports
// each. So each element has its own message, and a second attempt deletes the others.
func (c *Conn) deleteClients(family ruleset.Family, name string, clients []ruleset.Element) error {
	set := &ruleset.Set{Name: name}
	for len(clients) > 0 {
		absent, err := c.deleteUnlessAbsent(family, set, clients)
		if len(absent) == 0 || err != nil {
			return err
		}
		left := make([]ruleset.Element, 0, len(clients))
		for i, client := range clients {
			if !absent[i] {
				left = append(left, client)
			}
		}
		clients = left
	}
	return nil
}

// deleteUnlessAbsent deletes all elements, or deletes none and returns the indexes of the missing ones.
func (c *Conn) deleteUnlessAbsent(family ruleset.Family, set *ruleset.Set, elements []ruleset.Element) (map[int]bool, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	m := &c.asker.Messages
	m.Reset()
	e := encoder{messages: m, name: ruleset.TableName, family: family}
	beginBatch(m)
	for i := range elements {
		e.elements(origin{}, unix.NFT_MSG_DELSETELEM, 0, &ruleset.Change{Set: set, Elements: elements[i : i+1]})
	}
	endBatch(m)
	failures, err := c.attempt(m)
	if err != nil {
		return nil, err
	}
	absent := make(map[int]bool)
	for _, f := range failures {
		if f.Errno != unix.ENOENT || f.Message == 0 {
			return nil, f
		}
		absent[f.Message-1] = true
	}
	return absent, nil
}
