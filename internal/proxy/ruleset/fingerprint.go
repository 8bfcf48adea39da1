package ruleset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Fingerprints are what the chain's rules carry in the kernel, one each, in order. They
// differ where the chains differ, be it in another rule, so that a chain has not only
// the right rules if it has the right fingerprints but no others, and in the right order.
func (c *Chain) Fingerprints() []string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q\n", c.Name)
	if c.Base != nil {
		fmt.Fprintf(hash, "%+v\n", *c.Base)
	}
	for _, r := range c.Rules {
		fmt.Fprintf(hash, "%d %s\n", r.Family, r)
	}
	sum := hex.EncodeToString(hash.Sum(nil)[:8])
	prints := make([]string, len(c.Rules))
	for i := range c.Rules {
		prints[i] = fmt.Sprintf("%s-%d", sum, i)
	}
	return prints
}

// Fingerprint is what the set carries in the kernel. It differs where sets differ in
// anything but their elements and their size, which their names tell.
func (s *Set) Fingerprint() string {
	kind := struct {
		Name      string
		Key, Data []Field
		Verdicts  bool
		Dynamic   bool
	}{s.Name, s.Key, s.Data, s.Verdicts, s.Dynamic}
	sum := sha256.Sum256(fmt.Appendf(nil, "%+v", kind))
	return hex.EncodeToString(sum[:8])
}

// is reports whether the kernel holds a chain as this package makes it.
func (l ListedChain) is(c *Chain) bool {
	return l.entered(c.Base) && slices.Equal(l.Fingerprints, c.Fingerprints())
}

// entered reports whether packets enter the chain where a base has them enter it, or
// nowhere if there is none.
func (l ListedChain) entered(base *Base) bool {
	if l.Base == nil || base == nil {
		return l.Base == base
	}
	return !l.ForeignBase && *l.Base == *base
}
