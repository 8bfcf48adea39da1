package view

import (
	"errors"
	"fmt"

	"vicinity.dev/vicinity/internal/proxy/compile"
)

// FlagExternalIPs is the flag for the addresses that Services may claim by spec.externalIPs.
const FlagExternalIPs = "external-ips"

// AllExternalIPs is the default value of the flag.
const AllExternalIPs = "all"

const noExternalIPs = "none"

// ParseExternalIPs reads prefixes, or the word "all" or "none" alone. It refuses an empty list, which could mean either.
func ParseExternalIPs(texts []string) (compile.ExternalIPs, error) {
	var none compile.ExternalIPs
	if len(texts) == 0 {
		return none, errors.New(`an empty list is not allowed; it must be prefixes such as 203.0.113.0/24, or "all" or "none" alone`)
	}
	word, prefixes, err := parsePrefixes(texts, `a prefix such as 203.0.113.0/24, or "all" or "none" alone`, AllExternalIPs, noExternalIPs)
	if err != nil {
		return none, err
	}
	for i, prefix := range prefixes {
		if prefix.Addr().Is4In6() {
			return none, fmt.Errorf("%q is not allowed; IPv4 addresses must be in the notation of IPv4, such as 203.0.113.0/24", texts[i])
		}
	}
	return compile.ExternalIPs{None: word == noExternalIPs, Prefixes: prefixes}, nil
}
