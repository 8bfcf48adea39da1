package locate

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"
)

const (
	minBuckets = 64
	// A table doubles when it has more entries for each of its chains. Lookups are worth
	// short chains, writers do with longer ones.
	maxLoad, maxPodLoad = 1, 2
)

// key is a prefix in IPv6, where IPv4 addresses are mapped. An address is a prefix of 128 bits.
type key struct {
	high, low uint64
	bits      uint8
}

func keyOf(addr netip.Addr) key {
	bytes := addr.As16()
	return key{high: binary.BigEndian.Uint64(bytes[:8]), low: binary.BigEndian.Uint64(bytes[8:]), bits: 128}
}

func rangeOf(prefix netip.Prefix) key {
	length := prefix.Bits()
	if prefix.Addr().Is4() {
		length += 96
	}
	return keyOf(prefix.Addr()).masked(uint8(length))
}

// masked is the prefix of so many bits, which are not more than it has.
func (k key) masked(length uint8) key {
	if length <= 64 {
		return key{high: k.high &^ (^uint64(0) >> length), bits: length}
	}
	return key{high: k.high, low: k.low &^ (^uint64(0) >> (length - 64)), bits: length}
}

// is4 reports whether all addresses of the prefix are of IPv4.
func (k key) is4() bool { return k.bits >= 96 && k.high == 0 && k.low>>32 == 0xffff }

// hash decides places only, never an outcome.
func (k key) hash() uint64 {
	high, low := bits.Mul64(k.high^uint64(k.bits)^0x9e3779b97f4a7c15, k.low^0xd1b54a32d192ed03)
	mixed := high ^ low
	high, low = bits.Mul64(mixed^0x8bb84b93962eacc9, 0x2d358dccaa6c78a5)
	return high ^ low
}

// claim says that the addresses of a prefix are at a place. Once readers can see it, only next and
// place change. It fills 48 bytes.
type claim struct {
	high, low uint64 // with bits the prefix, see key
	next      atomic.Pointer[claim]
	place     atomic.Pointer[place]
	sibling   *claim // the next claim of the same node or pod
	created   uint32 // in seconds since 1970
	bits      uint8
	source    Source
}

func (c *claim) prefix() key { return key{high: c.high, low: c.low, bits: c.bits} }

func (c *claim) is(k key) bool { return c.low == k.low && c.high == k.high && c.bits == k.bits }

// before reports whether a new claim counts before one that is there, for the same prefix.
func (c *claim) before(other *claim) bool {
	if c.source != other.source {
		return c.source < other.source
	}
	return c.created >= other.created
}

// table has the claims in chains, by the first bits of the hash of their prefix. A chain is
// in the order of hashes, so that a table of twice the size has each chain cut in two. Of
// claims for the same prefix that which counts comes first.
type table struct {
	heads []atomic.Pointer[claim] // a power of two, at least two
	shift uint8                   // a hash without so many last bits is that of a head
	// of4 and of6 are the lengths that ranges of either family have, the longest first.
	of4, of6 []uint8
}

func newTable(size int) *table {
	return &table{heads: make([]atomic.Pointer[claim], size), shift: uint8(64 - bits.TrailingZeros(uint(size)))}
}

func (t *table) head(hash uint64) *atomic.Pointer[claim] { return &t.heads[hash>>t.shift] }

// find returns the claim that counts for an address.
func (t *table) find(k key) *claim {
	if c := t.first(k); c != nil {
		return c
	}
	lengths := t.of6
	if k.is4() {
		lengths = t.of4
	}
	for _, length := range lengths {
		if c := t.first(k.masked(length)); c != nil {
			return c
		}
	}
	return nil
}

func (t *table) first(k key) *claim {
	for c := t.head(k.hash()).Load(); c != nil; c = c.next.Load() {
		if c.is(k) {
			return c
		}
	}
	return nil
}

// insert links a claim at its place in its chain.
func (t *table) insert(c *claim) {
	k := c.prefix()
	hash := k.hash()
	at := t.head(hash)
	for other := at.Load(); other != nil; other = at.Load() {
		if of := other.prefix(); of == k && c.before(other) || of != k && of.hash() > hash {
			break
		}
		at = &other.next
	}
	c.next.Store(at.Load())
	at.Store(c)
}

// remove unlinks a claim. A reader that stands on it still finds the rest of the chain.
func (t *table) remove(c *claim) {
	at := t.head(c.prefix().hash())
	for other := at.Load(); other != c; other = at.Load() {
		at = &other.next
	}
	at.Store(c.next.Load())
}

// doubled is a table of twice the size with the same claims. Its chains run on into the next
// one until they are cut, which is for readers who have the new table only.
func (t *table) doubled() *table {
	double := newTable(2 * len(t.heads))
	double.of4, double.of6 = t.of4, t.of6
	for i := range t.heads {
		for c := t.heads[i].Load(); c != nil; c = c.next.Load() {
			if head := double.head(c.prefix().hash()); head.Load() == nil {
				head.Store(c)
			}
		}
	}
	return double
}

// cut ends each chain where the next one begins.
func (t *table) cut() {
	for i := range t.heads {
		c := t.heads[i].Load()
		for c != nil {
			next := c.next.Load()
			if next != nil && next.prefix().hash()>>t.shift != uint64(i) {
				c.next.Store(nil)
				break
			}
			c = next
		}
	}
}

// lengths counts the ranges of each length, of IPv4 and of IPv6.
type lengths struct{ of4, of6 [129]int32 }

// count adds to the ranges of a prefix's length, and reports whether the lengths in use changed.
func (l *lengths) count(k key, by int32) bool {
	of := &l.of6
	if k.is4() {
		of = &l.of4
	}
	had := of[k.bits] > 0
	of[k.bits] += by
	return had != (of[k.bits] > 0)
}

// inUse are lengths that ranges have, the longest first. Prefixes of 128 bits are always
// looked for.
func inUse(counts *[129]int32) []uint8 {
	var used []uint8
	for length, n := range counts[:128] {
		if n > 0 {
			used = append(used, uint8(length))
		}
	}
	slices.Reverse(used)
	return used
}
