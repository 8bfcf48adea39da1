package kernel_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestFindings(t *testing.T) {
	settings := func(ipv4, ipv6, bridge string) fs.FS {
		return fstest.MapFS{
			"net/ipv4/ip_forward":                 {Data: []byte(ipv4 + "\n")},
			"net/ipv6/conf/all/forwarding":        {Data: []byte(ipv6 + "\n")},
			"net/bridge/bridge-nf-call-iptables":  {Data: []byte(bridge + "\n")},
			"net/bridge/bridge-nf-call-ip6tables": {Data: []byte(bridge + "\n")},
		}
	}
	for name, test := range map[string]struct {
		settings fs.FS
		family   ruleset.Family
		want     []string
	}{
		"all is well":                {settings("1", "1", "1"), ruleset.IPv4, nil},
		"no forwarding":              {settings("0", "1", "1"), ruleset.IPv4, []string{"net.ipv4.ip_forward"}},
		"no forwarding of the other": {settings("1", "0", "1"), ruleset.IPv4, nil},
		"bridges":                    {settings("0", "0", "0"), ruleset.IPv6, []string{"net.ipv6.conf.all.forwarding", "net.bridge.bridge-nf-call-ip6tables"}},
		"a kernel without them":      {fstest.MapFS{}, ruleset.IPv6, nil},
	} {
		found, err := kernel.Findings(test.settings, test.family)
		var names []string
		for _, one := range found {
			names = append(names, one.Name)
		}
		if err != nil || !slices.Equal(names, test.want) {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
	}
}

// settingsFolder is one of settings of connection tracking.
func settingsFolder(t *testing.T, values map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "netfilter"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(folder, "netfilter", name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// readSettings are the values of a folder.
func readSettings(t *testing.T, folder string) map[string]string {
	t.Helper()
	values := map[string]string{}
	files, err := filepath.Glob(filepath.Join(folder, "netfilter", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		values[filepath.Base(file)] = strings.TrimSpace(string(text))
	}
	return values
}

func TestConntrackIsSet(t *testing.T) {
	before := map[string]string{
		"nf_conntrack_max": "65536", "nf_conntrack_buckets": "65536", "nf_conntrack_tcp_timeout_established": "432000", "nf_conntrack_tcp_timeout_close_wait": "60",
		"nf_conntrack_udp_timeout": "30", "nf_conntrack_udp_timeout_stream": "120", "nf_conntrack_tcp_be_liberal": "0",
	}
	for _, test := range []struct {
		name   string
		asked  kernel.Conntrack
		cpus   int
		before map[string]string
		want   map[string]string // what differs
	}{
		{name: "nothing", cpus: 4},
		{
			name: "as kube-proxy, on few CPUs", cpus: 2,
			asked: kernel.Conntrack{MaxPerCPU: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour},
			want: map[string]string{
				"nf_conntrack_max": "131072", "nf_conntrack_tcp_timeout_established": "86400", "nf_conntrack_tcp_timeout_close_wait": "3600",
			},
		},
		{name: "by CPUs", cpus: 16, asked: kernel.Conntrack{MaxPerCPU: 32768, Min: 131072}, want: map[string]string{"nf_conntrack_max": "524288", "nf_conntrack_buckets": "131072"}},
		{name: "of many CPUs", cpus: 1000, asked: kernel.Conntrack{MaxPerCPU: 32768}, want: map[string]string{"nf_conntrack_max": "1048576", "nf_conntrack_buckets": "262144"}},
		{name: "without a number for each CPU", cpus: 4, asked: kernel.Conntrack{Min: 131072}},
		{
			name: "there is more", cpus: 2, asked: kernel.Conntrack{MaxPerCPU: 32768, Min: 131072},
			before: map[string]string{"nf_conntrack_max": "262144", "nf_conntrack_buckets": "262144"},
		},
		{
			name: "all others", cpus: 2, asked: kernel.Conntrack{UDP: time.Minute, UDPStream: 3 * time.Minute, TCPBeLiberal: true},
			want: map[string]string{"nf_conntrack_udp_timeout": "60", "nf_conntrack_udp_timeout_stream": "180", "nf_conntrack_tcp_be_liberal": "1"},
		},
		{
			name: "less is set too", cpus: 2, asked: kernel.Conntrack{UDP: time.Second, UDPStream: 2 * time.Minute},
			want: map[string]string{"nf_conntrack_udp_timeout": "1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			had := maps.Clone(before)
			maps.Copy(had, test.before)
			folder := settingsFolder(t, had)
			changes := test.asked.Set(folder, test.cpus)
			want := maps.Clone(had)
			maps.Copy(want, test.want)
			if got := readSettings(t, folder); !maps.Equal(got, want) {
				t.Errorf("set are %v, want %v", got, want)
			}
			var reported []string
			for _, c := range changes {
				name := strings.TrimPrefix(c.Name, "net.netfilter.")
				if reported = append(reported, name); c.Err != nil || c.Value != had[name] || c.Want != want[name] || c.Consequence == "" {
					t.Errorf("%+v", c)
				}
			}
			if slices.Sort(reported); !slices.Equal(reported, slices.Sorted(maps.Keys(test.want))) {
				t.Errorf("reported are changes of %q", reported)
			}
			if again := test.asked.Set(folder, test.cpus); len(again) > 0 {
				t.Errorf("committed again: %v", again)
			}
		})
	}
}

// A setting that cannot be changed is reported with its cause, and the others are set.
func TestConntrackSettingFails(t *testing.T) {
	asked := kernel.Conntrack{MaxPerCPU: 1 << 30, UDP: time.Minute}
	folder := settingsFolder(t, map[string]string{"nf_conntrack_udp_timeout": "30"})
	if err := os.Mkdir(filepath.Join(folder, "netfilter", "nf_conntrack_max"), 0o755); err != nil {
		t.Fatal(err)
	}
	changes := asked.Set(folder, 1)
	if len(changes) != 3 || changes[0].Err == nil || changes[0].Value != "unknown" || changes[0].Want != "1048576" ||
		changes[1].Err == nil || !strings.Contains(changes[1].Err.Error(), "does not track connections yet") || changes[2].Err != nil {
		t.Errorf("changes %+v", changes)
	}
}
