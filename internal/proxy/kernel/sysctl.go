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

// Finding is a setting of the kernel with a wrong value.
type Finding struct {
	// Name is the sysctl name of the setting.
	Name        string
	Value, Want string
	// Consequence describes what does not work with the value.
	Consequence string
}

// forwarding has the checked settings. The value 0 is wrong.
var forwarding = []struct {
	family            ruleset.Family
	name, consequence string
}{
	{ruleset.IPv4, "net.ipv4.ip_forward", "the node forwards no packet between pods and other nodes"},
	{ruleset.IPv6, "net.ipv6.conf.all.forwarding", "the node forwards no packet between pods and other nodes by IPv6"},
	{ruleset.IPv4, "net.bridge.bridge-nf-call-iptables", "a pod that is on the same bridge as the endpoint of its connection gets answers from a wrong address"},
	{ruleset.IPv6, "net.bridge.bridge-nf-call-ip6tables", "a pod that is on the same bridge as the endpoint of its connection gets answers from a wrong address by IPv6"},
}

// Findings returns the settings with a wrong value for a family, read below /proc/sys. It ignores settings that the kernel
// does not have.
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

// Conntrack configures connection tracking. Zero fields leave a setting unchanged.
type Conntrack struct {
	// MaxPerCPU and Min set the maximum number of connections: MaxPerCPU for each CPU, at least Min and at most
	// mostTracked. Set only raises the maximum, and leaves it unchanged without MaxPerCPU.
	MaxPerCPU, Min int
	// The timeouts of idle connections: of TCP while it is open and after one side has closed it, of UDP before and after
	// a second answer.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal accepts out-of-order packets of TCP as part of their connection.
	TCPBeLiberal bool
}

const (
	// mostTracked bounds the memory of the connection table on nodes with many CPUs.
	mostTracked = 1 << 20
	// perBucket is the number of connections for each bucket of a full table.
	perBucket = 4
)

// max returns the maximum number of connections, zero to leave it unchanged.
func (c *Conntrack) max(cpus int) int {
	if c.MaxPerCPU == 0 {
		return 0
	}
	if scaled := c.MaxPerCPU * cpus; scaled <= mostTracked {
		return max(scaled, c.Min)
	}
	return mostTracked
}

// Change is a setting of the kernel that Set has changed or tried to change. Value is its previous value.
type Change struct {
	Finding
	// Err is why the setting could not be changed, nil if it was changed.
	Err error
}

// tracked is a wanted setting of connection tracking.
type tracked struct {
	name        string
	want        int
	atLeast     bool
	consequence string
}

// Set configures the kernel, on a node with a number of CPUs. folder has the network settings: /proc/sys/net, or another
// mount if that is read-only. Set returns the settings with other values.
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

// set writes the wanted value. It returns nothing if the setting had it.
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
		err = errors.New("the kernel lacks the setting, or does not track connections yet")
	case err != nil:
		err = fmt.Errorf("%w; set it on the node, or run where /proc/sys can be written", err)
	}
	return []Change{{Finding{"net.netfilter." + t.name, cmp.Or(value, "unknown"), strconv.Itoa(t.want), t.consequence}, err}}
}
