// Package topology defines domains, and the ordered keys by which a client chooses endpoints.
//
// A domain is a value of a node label: the zone "a" is the set of nodes labelled
// topology.kubernetes.io/zone=a. Tiers are an ordered list of label keys, nearest first.
// A client uses the first tier in which any ready endpoint shares its value of the key.
// A node without the label, or with an empty value, shares nothing. "*", which can only be
// the last tier, matches every endpoint. Tiers without "*" are hard: when nothing
// matches, the client reaches nothing.
//
// Package endpoint follows tiers on a node, and package allocate for whole zones.
package topology

import (
	"fmt"
	"slices"
	"strings"
)

// Keys with a meaning in Kubernetes.
const (
	Hostname = "kubernetes.io/hostname"
	Zone     = "topology.kubernetes.io/zone"
	Region   = "topology.kubernetes.io/region"
)

// Anywhere is the tier that every endpoint matches. It can only stand last.
const Anywhere = "*"

// MaxKeys bounds the number of tiers of one Service, since each is compared for each node.
const MaxKeys = 16

// Labels are the labels of a node.
type Labels map[string]string

// Tiers are label keys in the order of preference, Anywhere possibly the last.
// The zero value has no keys and constrains nothing.
type Tiers []string

// ParseTiers reads tiers from a comma-separated list, as users write them in the
// annotation vicinity.dev/topology-keys. White space around keys is ignored and an
// empty list is the zero value.
func ParseTiers(list string) (Tiers, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	tiers := Tiers(strings.Split(list, ","))
	for i, key := range tiers {
		tiers[i] = strings.TrimSpace(key)
	}
	if err := tiers.Validate(); err != nil {
		return nil, err
	}
	return tiers, nil
}

// Validate checks the number and the order of keys. The syntax of label keys is left to the caller, which has
// Kubernetes' own rules.
func (t Tiers) Validate() error {
	if len(t) > MaxKeys {
		return fmt.Errorf("topology keys: %d keys given, at most %d are allowed", len(t), MaxKeys)
	}
	for i, key := range t {
		switch {
		case key == "":
			return fmt.Errorf("topology keys: key %d of %d is empty; each must be a node label key, or %q as the last", i+1, len(t), Anywhere)
		case key == Anywhere && i != len(t)-1:
			return fmt.Errorf("topology keys: %q is key %d of %d; it matches everything and must be the last", Anywhere, i+1, len(t))
		case slices.Contains(t[:i], key):
			return fmt.Errorf("topology keys: %q is given twice, the second time as key %d of %d; each key may appear once", key, i+1, len(t))
		}
	}
	return nil
}

// Noun returns the word for a domain of a key.
func Noun(key string) string {
	switch key {
	case Zone, "failure-domain.beta.kubernetes.io/zone":
		return "zone"
	case Region, "failure-domain.beta.kubernetes.io/region":
		return "region"
	case Hostname:
		return "node"
	}
	return "domain"
}

// IsFine reports whether domains of a key are taken to be finer than zones, as hosts and racks are.
func IsFine(key string) bool {
	return key != Zone && key != Region && key != Anywhere
}

// Hard reports whether a client that no tier serves reaches nothing.
func (t Tiers) Hard() bool {
	return len(t) > 0 && t[len(t)-1] != Anywhere
}

// String returns the form that ParseTiers reads.
func (t Tiers) String() string {
	return strings.Join(t, ",")
}
