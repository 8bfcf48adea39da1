// Package kernel carries out the transactions of package ruleset by netlink. It also lists the kernel's rules, notices
// changes by other programs, and deletes stale connections. It decides nothing.
//
// Everything happens in the network namespace of the thread that opens a connection.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Conn is a connection to nftables. Several goroutines may use it.
type Conn struct {
	mutex sync.Mutex
	asker netlink.Asker // under mutex
	// others receives notices of changes by others.
	others *netlink.Socket
	// commits counts transactions.
	commits uint32
	// missedNotifications means that others may have changed rules while notices were off.
	missedNotifications bool
	// lists is for listings, so that changes do not wait for them.
	lists struct {
		sync.Mutex
		netlink.Asker
		closed bool
	}
}

// Open connects to the kernel. It needs the capability NET_ADMIN.
func Open() (*Conn, error) {
	if err := checkVersion(); err != nil {
		return nil, err
	}
	c, err := open()
	return c, missing(err)
}

func open() (*Conn, error) {
	c := &Conn{}
	for _, s := range []**netlink.Socket{&c.asker.Socket, &c.others, &c.lists.Socket} {
		var err error
		if *s, err = netlink.Dial(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	// Without nftables this fails.
	if _, err := readGeneration(&c.asker); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := listen(c.others, c.asker.Socket.Port()); err != nil {
		return nil, errors.Join(fmt.Errorf("asking for notices of changes: %w", err), c.Close())
	}
	return c, nil
}

// Close waits for a running listing and ends the connection. The rules stay.
func (c *Conn) Close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.lists.Lock()
	defer c.lists.Unlock()
	c.lists.closed = true
	return errors.Join(c.asker.Socket.Close(), c.others.Close(), c.lists.Socket.Close())
}

// Cleanup deletes the tables of both families.
func (c *Conn) Cleanup(ctx context.Context) error {
	var errs []error
	for _, family := range ruleset.Families {
		errs = append(errs, c.Apply(ctx, ruleset.Transaction{
			Family: family, Changes: []ruleset.Change{{Kind: ruleset.DeleteTable}},
		}))
	}
	return errors.Join(errs...)
}

// readGeneration reads the number of the kernel's rules, which changes with each transaction.
func readGeneration(a *netlink.Asker) (uint32, error) {
	var generation uint32
	err := a.Ask(func(m *netlink.Messages) {
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC, 0)
	}, func(content []byte) {
		generation = netlink.Count(netlink.Attribute(content, unix.NFTA_GEN_ID))
	})
	if err != nil {
		return 0, fmt.Errorf("reading the generation of the rules: %w", err)
	}
	return generation, nil
}
