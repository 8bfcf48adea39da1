package main

import (
	"slices"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"

	"vicinity.dev/vicinity/internal/names/corefile"
)

// upstream is the order of CoreDNS. The test package sets ours.
var upstream = slices.Clone(dnsserver.Directives)

func init() {
	if err := dnsserver.SetDirectives(corefile.Plugins); err != nil {
		panic(err)
	}
}

// The order is that of CoreDNS, except that cache comes after dnssec, with vicinity in between.
func TestOrderMatchesCoreDNS(t *testing.T) {
	without := func(list []string, names ...string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(names, name) })
	}
	theirs := slices.DeleteFunc(without(upstream, "cache"), func(name string) bool { return !slices.Contains(corefile.Plugins, name) })
	if ours := without(corefile.Plugins, "cache", "vicinity"); !slices.Equal(ours, theirs) {
		t.Errorf("the order is\n%v\nCoreDNS has\n%v", ours, theirs)
	}
	at := slices.Index(corefile.Plugins, "vicinity")
	if want := []string{"dnssec", "vicinity", "cache"}; !slices.Equal(corefile.Plugins[at-1:at+2], want) {
		t.Errorf("got %v, want %v", corefile.Plugins[at-1:at+2], want)
	}
}

// A directive without a plugin would be accepted and ignored.
func TestDirectivesHavePlugins(t *testing.T) {
	registered := caddy.ListPlugins()["others"]
	for _, name := range corefile.Plugins {
		if !slices.Contains(registered, "dns."+name) && !slices.Contains(registered, name) {
			t.Errorf("there is no plugin for the directive %s: %v", name, registered)
		}
	}
}
