package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	nftables "vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/namespacetest"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// A proxy starts beside a program that changes rules of its own without end, so that those
// of the kernel cannot be read.
func TestStartBesideABusyWriter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	var writer, reader *nftables.Conn
	busy := &exec.Cmd{}
	var script io.WriteCloser
	namespacetest.New(t).Must(t, func() (err error) {
		if writer, err = nftables.Open(); err != nil {
			return err
		}
		if reader, err = nftables.Open(); err != nil {
			return err
		}
		// Each line is a transaction.
		busy = exec.CommandContext(t.Context(), "nft", "-i")
		if script, err = busy.StdinPipe(); err != nil {
			return err
		}
		return busy.Start()
	})
	t.Cleanup(func() {
		for _, one := range []io.Closer{writer, reader} {
			if err := one.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	w := &world{t: t}
	fill := func(endpoint int) {
		for i := range 300 {
			name := fmt.Sprintf("s%d", i)
			var addresses []string
			for n := range 60 {
				addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", endpoint, i%256, n+1))
			}
			w.put(aService(name, fmt.Sprintf("10.96.%d.%d", i/256, i%256)), aGroup(name, name+"-1", addresses...))
		}
	}
	// begin has a proxy program everything, and returns how to end it.
	begin := func(endpoint int) (end func()) {
		w.programmer = liveProgrammer(writer)
		fill(endpoint)
		w.catalogue.Fill(func() { w.catalogue.SetNode(aNode("a")) })
		w.settleIn()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.programmer.run(ctx)
		}()
		return func() {
			stop()
			<-ended
		}
	}
	right := func() bool {
		listing, err := reader.Read(ruleset.IPv4)
		return err == nil && len(w.wanted()[ruleset.IPv4].Differences(listing)) == 0
	}
	end := begin(1)
	eventually(t, "all is programmed", right)
	end()

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			if _, err := io.WriteString(script, "add table ip busy\ndelete table ip busy\n"); err != nil {
				return // it was ended
			}
		}
	}()
	eventually(t, "the kernel cannot be read", func() bool {
		var changing interface{ KeepsChanging() bool }
		_, err := reader.Read(ruleset.IPv4)
		return errors.As(err, &changing)
	})
	// Now and then the kernel is read between two transactions. Then another proxy starts.
	rewritten := func() float64 { return testutil.ToFloat64(w.metrics.anew.WithLabelValues("IPv4")) }
	for endpoint, last := 2, time.Now().Add(time.Minute); ; endpoint++ {
		end = begin(endpoint)
		eventually(t, "all is programmed anew", func() bool { return testutil.ToFloat64(w.metrics.ports.WithLabelValues("IPv4")) == 300 })
		if got := rewritten(); got > 1 {
			t.Errorf("the rules were made anew %g times", got)
		}
		if rewritten() > 0 {
			break
		}
		end()
		if time.Now().After(last) {
			t.Fatalf("%d proxies started, and none made the rules anew", endpoint-1)
		}
	}
	if err := busy.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = busy.Wait() // it was killed
	<-stopped
	eventually(t, "the kernel has what it should", right)
	end()
}
