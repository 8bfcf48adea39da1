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

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Finding is a setting of the kernel that keeps Services from working as they should.
type Finding struct {
	// Name is that of the setting, as sysctl has it.
	Name string
	// Value is what it is set to, and Want what it should be.
	Value, Want string
	// Consequence says what does not work.
	Consequence string
}

// forwarding are the settings that are looked at, which are wrong if they are 0.
var forwarding = []struct {
	family            ruleset.Family
	name, consequence string
}{
	{ruleset.IPv4, "net.ipv4.ip_forward", "the node forwards no packet between pods and other nodes"},
	{ruleset.IPv6, "net.ipv6.conf.all.forwarding", "the node forwards no packet between pods and other nodes by IPv6"},
	{ruleset.IPv4, "net.bridge.bridge-nf-call-iptables", "a pod that is on the same bridge as the endpoint of its connection gets answers from a wrong address"},
	{ruleset.IPv6, "net.bridge.bridge-nf-call-ip6tables", "a pod that is on the same bridge as the endpoint of its connection gets answers from a wrong address by IPv6"},
}

// Findings are the settings that are wrong for a family, read below /proc/sys. Settings that the
// kernel does not have are not among them.
func Findings(sysctls fs.FS, family ruleset.Family) ([]Finding, error) {
	var findings []Finding
	for _, s := range forwarding {
		if s.family != family {
			continue
		}
		content, err := fs.ReadFile(sysctls, strings.ReplaceAll(s.name, ".", "/"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the setting %s: %w", s.name, err)
		}
		if strings.TrimSpace(string(content)) == "0" {
			findings = append(findings, Finding{Name: s.name, Value: "0", Want: "1", Consequence: s.consequence})
		}
	}
	return findings, nil
}

// Conntrack is how the kernel is to track connections. Zero fields leave the setting as it is.
type Conntrack struct {
	// MaxPerCPU and Min bound the number of connections: MaxPerCPU for each CPU, at least Min and at
	// most mostTracked. The bound is only raised, and not at all without MaxPerCPU.
	MaxPerCPU, Min int
	// The times after which the kernel forgets an idle connection: of TCP while it is open and once
	// one side has closed it, of UDP before and after it was answered more than once.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal has packets of TCP that are out of order taken for part of their connection.
	TCPBeLiberal bool
}

const (
	// mostTracked bounds the memory of the table of connections on nodes with many CPUs.
	mostTracked = 1 << 20
	// perBucket is how many connections a full table has for each bucket.
	perBucket = 4
)

// max is how many connections there may be, zero if that is left as it is.
func (c *Conntrack) max(cpus int) int {
	if c.MaxPerCPU == 0 {
		return 0
	}
	if scaled := c.MaxPerCPU * cpus; scaled <= mostTracked {
		return max(scaled, c.Min)
	}
	return mostTracked
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

// Set has the kernel track connections so, on a node with so many CPUs. The folder has its settings
// for networks: /proc/sys/net, or another one where that is read-only. It returns what was different.
func (c *Conntrack) Set(folder string, cpus int) []Change {
	most, liberal := c.max(cpus), 0
	if c.TCPBeLiberal {
		liberal = 1
	}
	var changes []Change
	for _, one := range []tracked{
		{"nf_conntrack_max", most, true, "new connections are dropped while the kernel tracks as many as that"},
		{"nf_conntrack_buckets", most / perBucket, true, "every packet takes longer while the kernel tracks many connections"},
		{"nf_conntrack_tcp_timeout_established", seconds(c.TCPEstablished), false, "a TCP connection that is idle for as many seconds is forgotten, and its next packet may be refused"},
		{"nf_conntrack_tcp_timeout_close_wait", seconds(c.TCPCloseWait), false, "a TCP connection that one side has closed is forgotten after as many seconds, and what the other still sends is lost"},
		{"nf_conntrack_udp_timeout", seconds(c.UDP), false, "a UDP connection without an answer is forgotten after as many seconds"},
		{"nf_conntrack_udp_timeout_stream", seconds(c.UDPStream), false, "a UDP connection that is idle for as many seconds is forgotten, and may go to another endpoint"},
		{"nf_conntrack_tcp_be_liberal", liberal, false, "packets of TCP that come out of order may end their connection"},
	} {
		if one.want > 0 {
			changes = append(changes, one.set(folder)...)
		}
	}
	return changes
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// set gives the setting its value. It returns nothing if the setting had that.
func (t *tracked) set(folder string) []Change {
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
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("the kernel does not have it, or does not track connections yet")
	case err != nil:
		err = fmt.Errorf("%w; set it on the node, or run where /proc/sys can be written", err)
	}
	return []Change{{Finding{"net.netfilter." + t.name, cmp.Or(value, "unknown"), strconv.Itoa(t.want), t.consequence}, err}}
}
