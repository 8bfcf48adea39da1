package accounting

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// many opens connections of UDP to the front, each from an address and port of its own.
func (n *namespace) many(count int) {
	n.t.Helper()
	n.set("nf_conntrack_udp_timeout", "3600")
	n.must(func() error {
		to := &unix.SockaddrInet4{Addr: front4.As4(), Port: frontPort}
		for i := range count {
			// 127/8 belongs to lo as a whole, but leads nowhere else.
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			from := &unix.SockaddrInet4{Port: 1024 + i%60000}
			binary.BigEndian.PutUint32(from.Addr[:], 127<<24+1+uint32(i/60000))
			if err := unix.Bind(fd, from); err != nil {
				return fmt.Errorf("binding %v: %w", from, err)
			}
			if err := unix.Sendto(fd, nil, 0, to); err != nil {
				return err
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkReading measures a reading of all connections: the time of a processor that
// it takes, the kernel's part included.
func BenchmarkReading(b *testing.B) {
	for _, count := range []int{0, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d connections", count), func(b *testing.B) {
			n := newNamespace(b)
			n.many(count)
			a := accountant(b, Options{})
			a.kernel = n.tracking()
			a.look(b.Context())
			before := a.health.used
			for b.Loop() {
				a.look(b.Context())
			}
			if got := len(a.ledger.open); got != count {
				b.Errorf("%d connections are open, want %d", got, count)
			}
			used := float64(a.health.used-before) / float64(b.N)
			b.ReportMetric(used/1e6, "cpu-ms/op")
			if count > 0 {
				b.ReportMetric(used/float64(count), "cpu-ns/connection")
			}
		})
	}
}

// BenchmarkReports measures taking the kernel's reports of connections that end, for
// each of them, reading them from the kernel included.
func BenchmarkReports(b *testing.B) {
	const count = 10_000
	n := newNamespace(b)
	a := accountant(b, Options{})
	a.kernel = n.tracking()
	a.look(b.Context())
	into := make([]byte, netlink.ReceiveBuffer)
	var took time.Duration
	for b.Loop() {
		listening, err := a.kernel.listen(64 << 20)
		if err != nil {
			b.Fatal(err)
		}
		n.many(count)
		n.flush()
		began, err := processTime()
		if err != nil {
			b.Fatal(err)
		}
		for received := 0; received < count; {
			got, err := listening.receive(into)
			if err != nil {
				b.Fatal(err)
			}
			received += messagesOf(into[:got])
			a.take(into[:got], netlink.TrackDelete, a.ledger.gone)
		}
		ended, err := processTime()
		if err != nil {
			b.Fatal(err)
		}
		took += ended - began
		if err := listening.close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op") // it would be mostly of making connections
	b.ReportMetric(float64(took)/float64(b.N*count), "cpu-ns/report")
	if got := a.ledger.book.rows()[0].connections; got != uint64(b.N*count) {
		b.Errorf("%d connections count, want %d", got, b.N*count)
	}
}

func processTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// BenchmarkLedger measures the counting alone, and how much memory open connections
// take.
func BenchmarkLedger(b *testing.B) {
	const count = 1_000_000
	connections := func(yield func(connection)) {
		c := connection{front: ruleset.Front{Address: front4, Port: frontPort}, target: target4}
		for i := range count {
			c.key = uint64(i+1) * 0x9e3779b97f4a7c15
			c.moved.request++
			yield(c)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	a := accountant(b, Options{})
	l := a.ledger
	l.begin()
	connections(l.found)
	l.finish(true, noon)
	taken := heap() - before
	for b.Loop() {
		l.begin()
		connections(l.found)
		l.finish(true, noon)
	}
	b.ReportMetric(float64(taken)/count, "bytes/connection")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N*count), "ns/connection")
	runtime.KeepAlive(a)
}
