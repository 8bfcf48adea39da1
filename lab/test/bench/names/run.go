package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

const (
	// restful is the share of a server's highest rate at which latencies are measured.
	restful = 1.0 / 3
	// Values of "pods" in the plugin kubernetes.
	insecure = "insecure"
	verified = "verified"
)

type bench struct {
	*meter.Run
	pods, nodes int
	untyped     dynamic.Interface
	figures     figures
}

func (b *bench) measure(ctx context.Context) error {
	for _, mix := range mixes {
		if err := os.WriteFile(b.file(mix), []byte(queries(mix)), 0o600); err != nil {
			return err
		}
	}
	b.Say("a control plane")
	if err := b.bringUp(ctx); err != nil {
		return err
	}
	if err := b.Rest(ctx); err != nil {
		return err
	}
	for _, c := range []contender{{dns: coredns, pods: insecure}, {dns: coredns, pods: verified}, {dns: vicinity, pods: insecure}} {
		if err := b.weigh(ctx, c); err != nil {
			return fmt.Errorf("%s with pods %s: %w", c.dns, c.pods, err)
		}
	}
	for _, cache := range []bool{false, true} {
		if err := b.compare(ctx, cache); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) file(mix string) string { return filepath.Join(b.Folder, mix+".queries") }

func (b *bench) weigh(ctx context.Context, c contender) error {
	s, err := b.serve(ctx, c)
	if err != nil {
		return err
	}
	m := memory{contender: c}
	_, err = b.load(s, plain, 0).run(ctx)
	if err == nil {
		m.held, err = s.Share()
	}
	if err == nil {
		m.most, err = s.Peak()
	}
	b.figures.memories = append(b.figures.memories, m)
	b.Say("%s with pods %s holds %d MiB", c.dns, c.pods, m.held>>20)
	return errors.Join(err, s.Stop())
}

// load sends one kind of queries in a round, as fast as the server answers.
func (b *bench) load(s *server, mix string, round int) load {
	return load{to: s.at, from: client(round), file: b.file(mix), length: duration}
}

func (b *bench) compare(ctx context.Context, cache bool) (err error) {
	servers := map[string]*server{}
	for _, dns := range []string{coredns, vicinity} {
		s, err := b.serve(ctx, contender{dns: dns, cache: cache, pods: insecure})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		servers[dns] = s
	}
	for _, mix := range mixes {
		c := &contest{mix: mix, cache: cache}
		b.figures.contests = append(b.figures.contests, c)
		if err := b.contest(ctx, servers, c); err != nil {
			return fmt.Errorf("%s queries, cache %s: %w", mix, yes(cache), err)
		}
		b.Say("%s queries, cache %s: queries a second %.3f, p99 %.3f and CPU %.3f of those of CoreDNS", mix, yes(cache), c.ratio(perSecond), c.ratio(p99), c.ratio(cpu))
	}
	return servers[vicinity].checkLocated(ctx)
}

func (b *bench) contest(ctx context.Context, servers map[string]*server, c *contest) error {
	// The first answers fill caches, and show a rate that both servers can follow.
	for _, dns := range []string{coredns, vicinity} {
		a, err := b.load(servers[dns], c.mix, 0).run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", dns, err)
		}
		if rate := int(a.perSecond * restful); c.rate == 0 || rate < c.rate {
			c.rate = rate
		}
	}
	// The last server of a round is the first of the next.
	order := []string{coredns, vicinity}
	for i := range rounds {
		r := round{}
		for _, dns := range order {
			t, err := b.takeTurn(ctx, servers[dns], b.load(servers[dns], c.mix, i), c.rate)
			if err != nil {
				return fmt.Errorf("%s: %w", dns, err)
			}
			r[dns] = t
		}
		c.rounds = append(c.rounds, r)
		slices.Reverse(order)
	}
	return nil
}

func (b *bench) takeTurn(ctx context.Context, s *server, l load, rate int) (turn, error) {
	before, err := s.CPU()
	if err != nil {
		return turn{}, err
	}
	fast, err := l.run(ctx)
	if err != nil {
		return turn{}, err
	}
	after, err := s.CPU()
	if err != nil {
		return turn{}, err
	}
	l.rate = rate
	slow, err := l.run(ctx)
	if err != nil {
		return turn{}, err
	}
	return turn{perSecond: fast.perSecond, cpu: (after - before) / time.Duration(max(1, fast.completed)), p99: slow.p99()}, nil
}
