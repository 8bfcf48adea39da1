package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Conntrack is how the kernel is to track connections. What is zero is left as it is.
type Conntrack struct {
	// MaxPerCPU and Min say how many connections there may be: that many for each CPU, at
	// least Min and at most mostTracked. The limit is only raised, and not at all without
	// MaxPerCPU.
	MaxPerCPU, Min int
	// The times after which the kernel forgets a connection that no packet comes by: of TCP
	// while it is open and once one side has closed it, of UDP before and after it was
	// answered more than once.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal has packets of TCP that are out of order taken for part of their
	// connection.
	TCPBeLiberal bool
}

const (
	// mostTracked bounds what the table of connections takes on nodes of many CPUs.
	mostTracked = 1 << 20
	// perBucket is how many connections there are for each bucket of a full table.
	perBucket = 4
)

// max is how many connections there may be, zero if that is left as it is.
func (c *Conntrack) max(cpus int) int {
	switch scaled := c.MaxPerCPU * cpus; {
	case c.MaxPerCPU == 0:
		return 0
	case scaled > mostTracked:
		return mostTracked
	default:
		return max(scaled, c.Min)
	}
}

// Change is a setting of the kernel that was not as asked for. Its Value is what it was.
type Change struct {
	Finding
	// Err is why it could not be changed, nil if it was.
	Err error
}

// tracked is a setting of connection tracking that is asked for.
type tracked struct {
	name        string
	want        int
	atLeast     bool
	consequence string
}

// Set has the kernel track connections so, on a node with so many CPUs. The folder is where
// its settings for networks are, /proc/sys/net or what stands for it. It returns what was
// otherwise.
func (c *Conntrack) Set(folder string, cpus int) []Change {
	var changes []Change
	for _, one := range c.settings(cpus) {
		if change := one.set(folder); change != nil {
			changes = append(changes, *change)
		}
	}
	return changes
}

// settings are those that are asked for.
func (c *Conntrack) settings(cpus int) []tracked {
	most := c.max(cpus)
	all := []tracked{
		{"nf_conntrack_max", most, true, "new connections are dropped while the kernel tracks as many as that"},
		{"nf_conntrack_buckets", most / perBucket, true, "every packet takes longer while the kernel tracks many connections"},
		{"nf_conntrack_tcp_timeout_established", seconds(c.TCPEstablished), false, "a TCP connection that is idle for as many seconds is forgotten, and its next packet may be refused"},
		{"nf_conntrack_tcp_timeout_close_wait", seconds(c.TCPCloseWait), false, "a TCP connection that one side has closed is forgotten after as many seconds, and what the other still sends is lost"},
		{"nf_conntrack_udp_timeout", seconds(c.UDP), false, "a UDP connection without an answer is forgotten after as many seconds"},
		{"nf_conntrack_udp_timeout_stream", seconds(c.UDPStream), false, "a UDP connection that is idle for as many seconds is forgotten, and may go to another endpoint"},
	}
	if c.TCPBeLiberal {
		all = append(all, tracked{"nf_conntrack_tcp_be_liberal", 1, false, "packets of TCP that come out of order may end their connection"})
	}
	asked := all[:0]
	for _, one := range all {
		if one.want > 0 {
			asked = append(asked, one)
		}
	}
	return asked
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// set gives the setting its value. It is nil if it had that.
func (t *tracked) set(folder string) *Change {
	file := filepath.Join(folder, "netfilter", t.name)
	text, err := os.ReadFile(file)
	value := strings.TrimSpace(string(text))
	if err == nil {
		is, wrong := strconv.Atoi(value)
		if wrong == nil && (is == t.want || t.atLeast && is > t.want) {
			return nil
		}
		err = os.WriteFile(file, []byte(strconv.Itoa(t.want)), 0)
	}
	change := &Change{Finding: Finding{Name: "net.netfilter." + t.name, Value: cmp.Or(value, "unknown"), Want: strconv.Itoa(t.want), Consequence: t.consequence}}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		change.Err = errors.New("the kernel does not have it, or does not track connections yet")
	case err != nil:
		change.Err = fmt.Errorf("%w; set it on the node, or run where /proc/sys can be written", err)
	}
	return change
}
