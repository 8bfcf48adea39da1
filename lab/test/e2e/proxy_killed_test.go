package e2e_test

import (
	"context"
	"errors"
	"fmt"
)

// proxyKilled kills the proxy of each node, one after the other. The next one finds the
// rules right and changes none.
func proxyKilled(ctx context.Context, s *scene) (string, error) {
	if err := s.deployed(ctx, 12, preferZone); err != nil {
		return "", err
	}
	if _, err := s.converged(ctx, "echo", 12); err != nil {
		return "", err
	}
	// What a change of before defers is done by then.
	if err := s.rulesRest(ctx); err != nil {
		return "", err
	}
	before, err := s.ruleHandles(ctx)
	if err != nil {
		return "", err
	}
	nodes := s.cluster.Shape().Nodes()
	u, err := s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		for _, node := range nodes {
			name := "vicinity-proxy-" + node.Name
			if err := errors.Join(s.cluster.KillComponent(ctx, name), s.cluster.StartComponent(ctx, name)); err != nil {
				return err
			}
		}
		return t.more(ctx, newRate*int64(afterRestart.Seconds()))
	})
	if err != nil {
		return "", err
	}
	after, err := s.ruleHandles(ctx)
	if err != nil {
		return "", err
	}
	for name, text := range before {
		if after[name] != text {
			return "", fmt.Errorf("a restart changed the rules of %s: %s", name, changedLines(text, after[name]))
		}
	}
	if err := s.scale(ctx, "echo", 15); err != nil {
		return "", err
	}
	if err := s.answersFrom(ctx, 15); err != nil {
		return "", err
	}
	return fmt.Sprintf("the proxies of %d nodes killed: %s; no rule changed by a restart, and the next change followed", len(nodes), u), nil
}
