package ruleset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Fingerprints returns one fingerprint for each rule. The kernel's rules carry them. They depend on the whole chain, so
// equal fingerprints mean equal rules in the same order.
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

// Fingerprint returns the fingerprint that the kernel's set carries. It depends on everything but elements and size.
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

// equals reports whether a listed chain equals a chain of this package.
func (l ListedChain) equals(c *Chain) bool {
	return l.hasBase(c.Base) && slices.Equal(l.Fingerprints, c.Fingerprints())
}

// hasBase reports whether the listed chain has the base, or none if base is nil.
func (l ListedChain) hasBase(base *Base) bool {
	if l.Base == nil || base == nil {
		return l.Base == base
	}
	return !l.ForeignBase && *l.Base == *base
}
