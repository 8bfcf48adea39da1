// Package kernel has the kernel of a node do what package ruleset says: it carries out
// transactions by netlink, reads back what the kernel holds, notices that others have
// changed it, and has the kernel forget connections that go nowhere. It decides nothing.
//
// It writes the messages itself. A library would have to be told a rule in one form and
// give it to the kernel in another for each of hundreds of thousands of elements, and keep
// to itself which of them the kernel refuses.
//
// Everything happens in the network namespace of the thread that opens a connection.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Conn is a connection to nftables. It can be used by several goroutines at once.
type Conn struct {
	mutex    sync.Mutex
	socket   *socket
	messages messages
	// generation is the number that the kernel's rules have if nobody else has changed any
	// since Interference was called, or the connection opened.
	generation uint32
	// At others the kernel tells what others change, if it has been asked to.
	others   *socket
	informed bool
}

// Open connects to the kernel, which takes the capability NET_ADMIN. Its error says what is
// missing.
func Open() (*Conn, error) {
	if err := checkVersion(); err != nil {
		return nil, err
	}
	c, err := open()
	return c, missing(err)
}

func open() (*Conn, error) {
	s, err := dial()
	if err != nil {
		return nil, err
	}
	others, err := dial()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	c := &Conn{socket: s, others: others}
	if c.generation, err = c.readGeneration(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the connection. What the kernel holds stays.
func (c *Conn) Close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return errors.Join(c.socket.close(), c.others.close())
}

// Cleanup deletes the tables of both families.
func (c *Conn) Cleanup(ctx context.Context) error {
	var errs []error
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		errs = append(errs, c.Apply(ctx, ruleset.Transaction{
			Family: family, Changes: []ruleset.Change{{Kind: ruleset.DeleteTable}},
		}))
	}
	return errors.Join(errs...)
}

// readGeneration asks for the number of the kernel's rules, which is another after each
// transaction.
func (c *Conn) readGeneration() (uint32, error) {
	var generation uint32
	err := c.ask(func(m *messages) {
		m.begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC, 0)
	}, func(content []byte) {
		generation = count(attribute(content, unix.NFTA_GEN_ID))
	})
	if err != nil {
		return 0, fmt.Errorf("reading the generation of the rules: %w", err)
	}
	return generation, nil
}
