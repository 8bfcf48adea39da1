// Package topology says what a domain is and which endpoints are near a client.
//
// A domain is a value of a node label: the zone "a" is the set of nodes labelled
// topology.kubernetes.io/zone=a. Tiers are an ordered list of such label keys, the
// nearest first. The first tier in which any ready endpoint shares the client's
// value wins; "*" as the last tier means "anywhere". Tiers without "*" are hard:
// when nothing matches, the client reaches nothing.
//
// The package does not read clusters, and it does not decide how much traffic an
// endpoint can bear: that is package allocate.
package topology

import (
	"fmt"
	"slices"
	"strings"
)

// Keys that Kubernetes itself gives a meaning.
const (
	Hostname = "kubernetes.io/hostname"
	Zone     = "topology.kubernetes.io/zone"
	Region   = "topology.kubernetes.io/region"
)

// Anywhere is the tier that every endpoint matches. It can only stand last.
const Anywhere = "*"

// MaxKeys bounds the number of tiers of one Service, since each is compared for each node.
const MaxKeys = 16

// Labels are the labels of a node: the places that it is in.
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

// Validate says what is wrong with the tiers, naming the key and its place. It
// leaves the syntax of label keys to the caller, which has Kubernetes' own rules.
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

// Noun is what people call a domain of a key.
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

// IsFine reports whether places of a key are finer than zones. Keys without a meaning of
// their own, as that of racks, are.
func IsFine(key string) bool {
	return key != Zone && key != Region && key != Anywhere
}

// Hard reports whether a client that no tier serves reaches nothing.
func (t Tiers) Hard() bool {
	return len(t) > 0 && t[len(t)-1] != Anywhere
}

// String is the form that ParseTiers reads.
func (t Tiers) String() string {
	return strings.Join(t, ",")
}

// Matches reports whether an endpoint on a node with the given labels is in the
// client's domain of key. A domain needs a value: nodes without the label, or with
// an empty one, share nothing.
func Matches(key string, client, endpoint Labels) bool {
	if key == Anywhere {
		return true
	}
	value := client[key]
	return value != "" && endpoint[key] == value
}

// Endpoint is an endpoint to match.
type Endpoint struct {
	Node  Labels // of the node that it runs on
	Ready bool
}

// None is the tier that Select returns when no tier serves the client.
const None = -1

// Select returns the index of the first tier in which any ready endpoint matches
// the client, and the indexes of the ready endpoints that do. Without tiers every
// ready endpoint matches, as tier 0. If nothing matches the tier is None.
func (t Tiers) Select(client Labels, endpoints []Endpoint) (tier int, matching []int) {
	tiers := t
	if len(tiers) == 0 {
		tiers = Tiers{Anywhere}
	}
	for tier, key := range tiers {
		for i := range endpoints {
			if endpoints[i].Ready && Matches(key, client, endpoints[i].Node) {
				matching = append(matching, i)
			}
		}
		if len(matching) > 0 {
			return tier, matching
		}
	}
	return None, nil
}
