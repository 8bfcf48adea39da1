package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// queueLength is how many packets of a zone can wait. The kernel drops further ones.
const queueLength = 1 << 14

// From linux/netfilter/nfnetlink_queue.h.
const (
	verdictMessage, configMessage               = 1, 2
	verdictHeader                               = 2
	configCommand, configCopy, configQueueLimit = 1, 2, 3
	bindCommand, copyMeta                       = 1, 1
	accepted                                    = 1
)

// DelayPackets delays the packets in a queue of this process' network namespace until the context ends.
// Then the kernel drops the waiting packets.
func DelayPackets(ctx context.Context, queue uint16, delay time.Duration) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("delaying packets: %w", withRemedy(err))
	}
	defer conn.Close()
	if err := readQueue(conn, queue); err != nil {
		return fmt.Errorf("delaying packets: reading queue %d: %w", queue, withRemedy(err))
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	type packet struct {
		id  []byte
		due time.Time
	}
	waiting := make(chan packet, queueLength)
	defer close(waiting)
	go func() {
		for p := range waiting {
			time.Sleep(time.Until(p.due))
			verdict := netlink.Attribute{Type: verdictHeader, Data: append(binary.BigEndian.AppendUint32(nil, accepted), p.id...)}
			_, _ = conn.Send(queueMessage(verdictMessage, queue, 0, verdict)) // an error ends Receive too
		}
	}()
	for {
		messages, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOENT):
			continue // the kernel dropped a waiting packet when its link was removed
		case err != nil:
			return fmt.Errorf("delaying packets: %w", err)
		}
		due := time.Now().Add(delay)
		for _, message := range messages {
			// The id of the packet follows two headers: of the message, and of its first attribute.
			waiting <- packet{message.Data[8:12], due}
		}
	}
}

func readQueue(conn *netlink.Conn, queue uint16) error {
	// A packet that does not fit into the buffer is lost.
	if err := errors.Join(conn.SetOption(netlink.NoENOBUFS, true), conn.SetReadBuffer(queueLength<<9)); err != nil {
		return err
	}
	_, err := conn.Execute(queueMessage(configMessage, queue, netlink.Acknowledge,
		netlink.Attribute{Type: configCommand, Data: []byte{bindCommand, 0, 0, 0}},
		netlink.Attribute{Type: configCopy, Data: []byte{0, 0, 0, 0, copyMeta}},
		netlink.Attribute{Type: configQueueLimit, Data: binary.BigEndian.AppendUint32(nil, queueLength)},
	))
	return err
}

func queueMessage(kind netlink.HeaderType, queue uint16, flags netlink.HeaderFlags, attributes ...netlink.Attribute) netlink.Message {
	data, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		panic(err) // they are short
	}
	return netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_QUEUE<<8 | kind, Flags: netlink.Request | flags},
		Data:   append(binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, 0}, queue), data...),
	}
}

// CheckQueue returns an error if no process reads the queue of a zone.
func (f *Fabric) CheckQueue(zone string) error {
	return InNamespace(f.namespace(), func() error {
		queues, err := os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_queue")
		if err != nil {
			return fmt.Errorf("looking for queues: %w", err)
		}
		if !strings.Contains("\n"+string(queues), fmt.Sprintf("\n%5d ", ZoneQueue(zone))) {
			return fmt.Errorf("no process reads queue %d", ZoneQueue(zone))
		}
		return nil
	})
}
