package view

import (
	"fmt"
	"net/netip"

	"vicinity.dev/vicinity/internal/proxy/compile"
)

// FlagExternalIPs is the flag of vicinity-proxy that says which addresses Services may claim
// by spec.externalIPs.
const FlagExternalIPs = "external-ips"

// AllExternalIPs is the value of the flag by default.
const AllExternalIPs = "all"

const noExternalIPs = "none"

// ParseExternalIPs reads prefixes, or the word "all" or "none" alone. An empty list is refused,
// because it could mean either.
func ParseExternalIPs(texts []string) (compile.ExternalIPs, error) {
	var parsed compile.ExternalIPs
	if len(texts) == 0 {
		return parsed, fmt.Errorf("an empty list is not allowed; it must be prefixes such as 203.0.113.0/24, or %q or %q alone", AllExternalIPs, noExternalIPs)
	}
	for _, text := range texts {
		if text == AllExternalIPs || text == noExternalIPs {
			if len(texts) > 1 {
				return compile.ExternalIPs{}, fmt.Errorf("%q is not allowed together with others", text)
			}
			return compile.ExternalIPs{None: text == noExternalIPs}, nil
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return compile.ExternalIPs{}, fmt.Errorf("%q is not allowed; it must be a prefix such as 203.0.113.0/24, or %q or %q alone", text, AllExternalIPs, noExternalIPs)
		}
		if prefix.Addr().Is4In6() {
			return compile.ExternalIPs{}, fmt.Errorf("%q is not allowed; IPv4 addresses must be in the notation of IPv4, such as 203.0.113.0/24", text)
		}
		parsed.Prefixes = append(parsed.Prefixes, prefix.Masked())
	}
	return parsed, nil
}
