package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Finding is a setting of the kernel that keeps Services from working as they should.
type Finding struct {
	// Name is that of the setting, as sysctl has it.
	Name string
	// Value is what it is set to, and Want what it should be.
	Value, Want string
	// Consequence is what does not work as it is, in words.
	Consequence string
}

// String says what is found and what it leads to.
func (f Finding) String() string {
	return fmt.Sprintf("%s is %s: %s; set it to %s", f.Name, f.Value, f.Consequence, f.Want)
}

// settings are those that are looked at.
var settings = []struct {
	family            ruleset.Family
	name, wrong, want string
	consequence       string
}{
	{
		ruleset.IPv4, "net.ipv4.ip_forward", "0", "1",
		"the node forwards no packet between pods and other nodes",
	},
	{
		ruleset.IPv6, "net.ipv6.conf.all.forwarding", "0", "1",
		"the node forwards no packet between pods and other nodes by IPv6",
	},
	{
		ruleset.IPv4, "net.bridge.bridge-nf-call-iptables", "0", "1",
		"a pod that is on the same bridge as the endpoint of its connection gets answers from a wrong address",
	},
	{
		ruleset.IPv6, "net.bridge.bridge-nf-call-ip6tables", "0", "1",
		"a pod that is on the same bridge as the endpoint of its connection gets answers from a wrong address by IPv6",
	},
}

// Findings are the settings of the kernel that are wrong for a family, read below
// /proc/sys. What the kernel does not have is not among them.
func Findings(sysctls fs.FS, family ruleset.Family) ([]Finding, error) {
	var findings []Finding
	for _, s := range settings {
		if s.family != family {
			continue
		}
		content, err := fs.ReadFile(sysctls, strings.ReplaceAll(s.name, ".", "/"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading the setting %s: %w", s.name, err)
		}
		if value := strings.TrimSpace(string(content)); value == s.wrong {
			findings = append(findings, Finding{Name: s.name, Value: value, Want: s.want, Consequence: s.consequence})
		}
	}
	return findings, nil
}
