package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// MinimumKernel is the oldest supported version of Linux, as for kube-proxy's nftables mode.
const MinimumKernel = "5.13"

// trialTable exists only within a transaction.
const trialTable = ruleset.TableName + "-trial"

// CheckSupport tries all statements that rules of a family need. The error names what is missing in one sentence.
func (c *Conn) CheckSupport(ctx context.Context, family ruleset.Family) error {
	if err := checkVersion(); err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	t := trial(family)
	return unsupported(t, c.apply(ctx, trialTable, t))
}

// unsupported explains the error of a trial, and what to do about it.
func unsupported(t ruleset.Transaction, err error) error {
	var refusal *Refusal
	switch {
	case errors.Is(err, unix.EPERM):
		return errors.New("changing nftables is not permitted: the capability NET_ADMIN is missing")
	case !errors.As(err, &refusal):
		return err
	case refusal.Change >= 0 && t.Changes[refusal.Change].Kind == ruleset.AddChain:
		chain := t.Changes[refusal.Change].Chain
		module := chain.Name
		if chain.Base != nil && chain.Base.NAT {
			module += " or nft_chain_nat"
		}
		return fmt.Errorf("the kernel's nftables cannot do %q, its module %s may be missing: %w; load it on the node by modprobe, or use a kernel that has it",
			chain.Rules, module, refusal.Errno)
	}
	return fmt.Errorf("the kernel's nftables refuses the rules: %w", err)
}

// HasIPv6 reports whether the kernel has IPv6: it may be built without, or started with ipv6.disable=1.
func HasIPv6() (bool, error) {
	opened, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("checking whether the kernel has IPv6: opening a socket: %w", err)
	}
	return true, unix.Close(opened)
}

// missing explains why the kernel refuses a connection.
func missing(err error) error {
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("the kernel does not have netfilter's netlink, its module nfnetlink may be missing: %w", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the kernel does not have nftables, its module nf_tables may be missing: %w", err)
	}
	return err
}

func checkVersion() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("reading the version of the kernel: %w", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	if isOlder(release, MinimumKernel) {
		return fmt.Errorf("the kernel is Linux %s, at least %s is needed", release, MinimumKernel)
	}
	return nil
}

// isOlder compares the first two numbers of two versions. Other formats are never older.
func isOlder(release, minimum string) bool {
	var has, wants [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &has[0], &has[1]); err != nil {
		return false
	}
	if _, err := fmt.Sscanf(minimum, "%d.%d", &wants[0], &wants[1]); err != nil {
		return false
	}
	return has[0] < wants[0] || has[0] == wants[0] && has[1] < wants[1]
}

// trial returns a transaction that adds all kinds of statements and deletes them. Each has a chain named after its kernel
// module.
func trial(family ruleset.Family) ruleset.Transaction {
	front := []ruleset.Value{ruleset.DestinationAddress, ruleset.TransportProtocol, ruleset.DestinationPort}
	frontFields := []ruleset.Field{ruleset.FieldAddress, ruleset.FieldProtocol, ruleset.FieldPort}
	target := []ruleset.Field{ruleset.FieldAddress, ruleset.FieldPort}
	verdicts := ruleset.Set{Name: "verdicts", Key: frontFields, Verdicts: true}
	slots := ruleset.Set{Name: "slots", Key: append(slices.Clone(frontFields), ruleset.FieldSlot), Data: target}
	clients := ruleset.Set{Name: "clients", Key: []ruleset.Field{ruleset.FieldAddress}, Data: target, Dynamic: true}
	half, suffix := netip.PrefixFrom(netip.IPv4Unspecified(), 1), "_ipv4"
	if family == ruleset.IPv6 {
		half, suffix = netip.PrefixFrom(netip.IPv6Unspecified(), 1), "_ipv6"
	}
	t := ruleset.Transaction{Family: family, Changes: []ruleset.Change{
		{Kind: ruleset.DeleteTable},
		{Kind: ruleset.AddTable},
		{Kind: ruleset.AddSet, Set: &verdicts},
		{Kind: ruleset.AddSet, Set: &slots},
		{Kind: ruleset.AddSet, Set: &clients},
	}}
	for _, try := range []struct {
		module    string
		base      *ruleset.Base
		statement ruleset.Statement
		more      ruleset.Statement
	}{
		{"nf_tables", nil, ruleset.InPrefix{Value: ruleset.SourceAddress, Prefix: half}, ruleset.InPrefixes{Value: ruleset.SourceAddress, Prefixes: []netip.Prefix{half}}},
		{"nft_fib" + suffix, nil, ruleset.FromNode{}, nil},
		{"nft_ct", nil, ruleset.LookUp{Key: []ruleset.Value{ruleset.OriginalAddress, ruleset.TransportProtocol, ruleset.OriginalPort}, Map: verdicts.Name}, nil},
		{"nft_numgen", &ruleset.Base{NAT: true, Hook: ruleset.Prerouting}, ruleset.Translate{Key: front, Slots: 2, Map: slots.Name}, ruleset.Draw{Share: 1, Of: 2}},
		{"nft_nat", &ruleset.Base{NAT: true, Hook: ruleset.Output}, ruleset.Translate{Key: []ruleset.Value{ruleset.SourceAddress}, Map: clients.Name}, nil},
		{"nft_masq", &ruleset.Base{NAT: true, Hook: ruleset.Postrouting}, ruleset.Masquerade{}, nil},
		{"nft_reject" + suffix, &ruleset.Base{Hook: ruleset.Forward}, ruleset.Refuse{}, nil},
		{"nft_dynset", nil, ruleset.Remember{Map: clients.Name, Timeout: 1}, ruleset.Unremember{Map: clients.Name}},
	} {
		rules := []ruleset.Rule{{Family: family, Statements: []ruleset.Statement{try.statement}}}
		if try.more != nil {
			rules = append(rules, ruleset.Rule{Family: family, Statements: []ruleset.Statement{try.more}})
		}
		t.Changes = append(t.Changes, ruleset.Change{Kind: ruleset.AddChain, Chain: &ruleset.Chain{Name: try.module, Base: try.base, Rules: rules}})
	}
	t.Changes = append(t.Changes, ruleset.Change{Kind: ruleset.DeleteTable})
	return t
}
