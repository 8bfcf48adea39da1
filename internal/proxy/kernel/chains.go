package kernel

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
)

// Chain is a chain of nftables, of any table.
type Chain struct {
	// Family is that of the table, as nft names it: ip, ip6 or inet.
	Family, Table, Name string
	// Base says where packets come in, nil if the chain is one that others lead to.
	Base *ChainBase
}

// ChainBase is where packets come into a chain.
type ChainBase struct {
	// Type is filter, nat or route, and Hook one of those of IP, as nft names them.
	Type, Hook string
	Priority   int
	// Drops says that packets are dropped that no rule of the chain accepts.
	Drops bool
}

// chainFamilies are the families of tables that packets of IP pass.
var chainFamilies = []struct {
	number uint8
	name   string
}{{unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}, {unix.NFPROTO_INET, "inet"}}

// hooks are those of IP, in the kernel's order.
var hooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// Chains lists the chains of all tables that packets of IP pass, as they are at the moment
// or nearly so.
func (c *Conn) Chains() ([]Chain, error) {
	c.lists.Lock()
	defer c.lists.Unlock()
	if c.lists.closed {
		return nil, net.ErrClosed
	}
	var all []Chain
	for _, family := range chainFamilies {
		var found []Chain
		err := netlink.Again(listTimes, func() error {
			found = nil
			return c.lists.Ask(func(m *netlink.Messages) {
				m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family.number, 0)
			}, func(content []byte) { found = append(found, readChain(family.name, content)) })
		})
		if err != nil {
			return nil, fmt.Errorf("listing chains of family %s: %w", family.name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func readChain(family string, content []byte) Chain {
	chain := Chain{
		Family: family, Table: netlink.Text(netlink.Attribute(content, unix.NFTA_CHAIN_TABLE)), Name: netlink.Text(netlink.Attribute(content, unix.NFTA_CHAIN_NAME)),
	}
	hook := netlink.Attribute(content, unix.NFTA_CHAIN_HOOK)
	number := netlink.Count(netlink.Attribute(hook, unix.NFTA_HOOK_HOOKNUM))
	if hook == nil || int(number) >= len(hooks) {
		return chain
	}
	chain.Base = &ChainBase{
		Type: netlink.Text(netlink.Attribute(content, unix.NFTA_CHAIN_TYPE)), Hook: hooks[number], Priority: int(int32(netlink.Count(netlink.Attribute(hook, unix.NFTA_HOOK_PRIORITY)))),
	}
	if policy := netlink.Attribute(content, unix.NFTA_CHAIN_POLICY); len(policy) == 4 {
		chain.Base.Drops = binary.BigEndian.Uint32(policy) == netfilterDrop
	}
	return chain
}
