//go:build !linux

package cli

import "errors"

// openRules is for the plugin on machines that cannot be nodes with vicinity-proxy.
func openRules() (rulesOfNode, error) {
	return nil, errors.New("only Linux has the rules of vicinity-proxy; run vicinity on the node")
}
