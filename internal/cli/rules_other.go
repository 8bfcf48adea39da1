//go:build !linux

package cli

import "errors"

// openRules fails: only Linux machines can be nodes with vicinity-proxy.
func openRules() (rulesOfNode, error) {
	return nil, errors.New("only Linux has the rules of vicinity-proxy; run vicinity on the node")
}
