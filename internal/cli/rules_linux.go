package cli

import "vicinity.dev/vicinity/internal/proxy/kernel"

func openRules() (rulesOfNode, error) {
	conn, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	return conn, nil
}
