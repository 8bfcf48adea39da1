package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Forget deletes what packets have added to maps and what may not be used any more.
func (c *Conn) Forget(family ruleset.Family, all []ruleset.Forget) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var errs []error
	for _, f := range all {
		if err := c.forget(family, f); err != nil {
			errs = append(errs, fmt.Errorf("forgetting clients in map %s of table %s %s: %w", f.Set, familyName(family), ruleset.TableName, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Conn) forget(family ruleset.Family, f ruleset.Forget) error {
	keep := make(map[string]bool, len(f.Keep))
	for _, target := range f.Keep {
		keep[targetData(target)] = true
	}
	return again(func() error {
		var gone []ruleset.Element
		r := reader{conn: c, listing: ruleset.Listing{Family: family}, strings: make(map[string]string)}
		err := r.eachElement(f.Set, func(e ruleset.Element) {
			if !keep[e.Data] {
				gone = append(gone, ruleset.Element{Key: e.Key})
			}
		})
		if errors.Is(err, unix.ENOENT) {
			return nil // the map is gone, or the table
		} else if err != nil {
			return err
		}
		return c.deleteElements(family, f.Set, gone)
	})
}

// deleteElements deletes elements of a map that packets add to. The error is errChanged if
// some had gone by themselves, so that others may be left.
func (c *Conn) deleteElements(family ruleset.Family, name string, elements []ruleset.Element) error {
	// One that is gone keeps the kernel from deleting all that it is to delete at once.
	const atOnce = 1000
	var changed error
	for part := range slices.Chunk(elements, atOnce) {
		err := c.apply(context.Background(), ruleset.TableName, ruleset.Transaction{Family: family, Changes: []ruleset.Change{
			{Kind: ruleset.DeleteElements, Set: &ruleset.Set{Name: name}, Elements: part},
		}})
		if errors.Is(err, unix.ENOENT) {
			changed = errChanged
		} else if err != nil {
			return err
		}
	}
	return changed
}

// targetData is a target as maps hold it.
func targetData(target netip.AddrPort) string {
	data := binary.BigEndian.AppendUint16(target.Addr().AsSlice(), target.Port())
	return string(append(data, 0, 0))
}
