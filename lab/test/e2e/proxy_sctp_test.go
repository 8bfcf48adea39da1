package e2e_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// A kernel without sockets for SCTP forwards its packets all the same. So a client sends a
// packet with an INIT chunk by a raw socket here, and the backends listen for it.

// sctpTags are the initiation tags, by which the packets of tries are told apart.
var sctpTags atomic.Uint32

// sctp begins connections from a namespace, and says which backends they reach, and from
// whose addresses.
func (st *stage) sctp(ctx context.Context, namespace string, target netip.AddrPort, family corev1.IPFamily) (string, error) {
	tag := 0x76690000 + sctpTags.Add(1)
	type arrival struct{ who, as string }
	arrivals := make(chan arrival, draws)
	failed := make(chan error, len(backends))
	var listeners []*os.File
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // which ends its reader
		}
	}()
	client := podAddress(st.pods["client-with"], family)
	for _, letter := range slices.Sorted(maps.Keys(backends)) {
		socket, err := rawSocket(shape.PodNamespace(st.cluster.Shape().Name, string(st.pods["be-"+letter].UID)), family)
		if err != nil {
			return "", err
		}
		listeners = append(listeners, socket)
		go func() {
			for {
				from, got, err := receiveSCTP(socket)
				if err != nil {
					if !errors.Is(err, os.ErrClosed) {
						failed <- err
					}
					return
				}
				if got == tag {
					arrivals <- arrival{letter, st.client(netip.AddrPortFrom(from, 1).String(), client)}
				}
			}
		}()
	}
	sender, err := rawSocket(namespace, family)
	if err != nil {
		return "", err
	}
	defer sender.Close()
	who, as := map[string]bool{}, map[string]bool{}
	for i := range draws {
		// Each packet has a source port of its own, and so is a connection of its own.
		port := uint16(20000 + (tag%500)*draws + uint32(i))
		if err := sendSCTP(sender, target, port, tag); err != nil {
			return "", err
		}
		select {
		case a := <-arrivals:
			who[a.who], as[a.as] = true, true
		case err := <-failed:
			return "", err
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(impatient):
			return noAnswer, nil
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(who)), " ") + " as " + strings.Join(slices.Sorted(maps.Keys(as)), ", "), nil
}

// rawSocket opens a socket for packets of SCTP.
func rawSocket(namespace string, family corev1.IPFamily) (*os.File, error) {
	domain := unix.AF_INET
	if family == corev1.IPv6Protocol {
		domain = unix.AF_INET6
	}
	var socket *os.File
	err := fabric.InNamespace(namespace, func() error {
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
		if err != nil {
			return fmt.Errorf("making a raw socket: %w", err)
		}
		socket = os.NewFile(uintptr(fd), "sctp")
		return nil
	})
	return socket, err
}

// sendSCTP sends a packet that begins a connection.
func sendSCTP(socket *os.File, to netip.AddrPort, from uint16, tag uint32) error {
	packet := make([]byte, 12+20)
	binary.BigEndian.PutUint16(packet[0:], from)
	binary.BigEndian.PutUint16(packet[2:], to.Port())
	packet[12] = 1 // INIT
	binary.BigEndian.PutUint16(packet[14:], 20)
	binary.BigEndian.PutUint32(packet[16:], tag)
	binary.BigEndian.PutUint32(packet[20:], 1<<16) // window
	binary.BigEndian.PutUint16(packet[24:], 1)     // streams out
	binary.BigEndian.PutUint16(packet[26:], 1)     // and in
	binary.BigEndian.PutUint32(packet[28:], 1)
	binary.LittleEndian.PutUint32(packet[8:], crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli)))
	var remote unix.Sockaddr = &unix.SockaddrInet6{Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		remote = &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.Sendto(int(fd), packet, 0, remote) }); err != nil {
		return err
	}
	return sent
}

// receiveSCTP waits for a packet, and returns who sent it and its initiation tag.
func receiveSCTP(socket *os.File) (from netip.Addr, tag uint32, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return from, 0, err
	}
	buffer := make([]byte, 2048)
	var n int
	var remote unix.Sockaddr
	var received error
	err = raw.Read(func(fd uintptr) bool {
		n, remote, received = unix.Recvfrom(int(fd), buffer, 0)
		return !errors.Is(received, unix.EAGAIN)
	})
	if err = errors.Join(err, received); err != nil {
		return from, 0, err
	}
	packet := buffer[:n]
	switch address := remote.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrFrom4(address.Addr)
		// IPv4 packets have their header before the payload.
		packet = packet[min(n, int(packet[0]&0xf)*4):]
	case *unix.SockaddrInet6:
		from = netip.AddrFrom16(address.Addr)
	}
	if len(packet) < 20 {
		return from, 0, nil
	}
	return from, binary.BigEndian.Uint32(packet[16:]), nil
}
