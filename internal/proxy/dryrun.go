package proxy

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// DryRun prints the rules that the node would have, in the syntax of nft. It does not apply --max-elements, whose effect
// depends on the order of changes, and leaves out the probed Service, which leads to a running proxy.
func DryRun(ctx context.Context, o Options, out io.Writer) error {
	c, err := cluster.NewClient(o.API)
	if err != nil {
		return err
	}
	return dryRun(ctx, c, o, out)
}

func dryRun(ctx context.Context, a cluster.API, o Options, out io.Writer) error {
	known, err := cluster.Read(ctx, a, o.scope())
	if err != nil {
		return err
	}
	node, zone := known.Position()
	if node == nil {
		return fmt.Errorf("the API server has no Node %q", o.NodeName)
	}
	var local []netip.Addr
	if o.NodePorts.ByPrefix() {
		if local, err = interfaceAddresses(); err != nil {
			return err
		}
	}
	settings := o.settings()
	options := settings.Options(node, zone, local)
	options.Addresses = addressBook(known, settings)
	settings.ServiceRanges = known.Reserved(settings).ServiceRanges

	all := known.Names()
	delete(all, types.NamespacedName{Namespace: o.LeaseNamespace, Name: o.ProbeService})
	names := slices.SortedFunc(maps.Keys(all), cluster.CompareNames)
	results := make([]compile.Result, len(names))
	var compiled []compile.Family
	for i, name := range names {
		e := known.Entry(name)
		results[i] = compile.Service(compile.Input{Service: e.Service, Groups: e.Groups, Slices: e.Slices, MaxElements: o.Elements.Service}, options)
		compiled = append(compiled, results[i].Families...)
	}
	tables := map[ruleset.Family]*ruleset.Table{}
	for _, number := range settings.Families() {
		if !slices.ContainsFunc(compiled, func(f compile.Family) bool { return f.Family == number }) {
			continue
		}
		tables[number] = view.Table(settings.Config(number, node), compiled)
	}
	for i, name := range names {
		o.writeNotes(out, name, &results[i])
	}
	for _, number := range settings.Families() {
		if tables[number] != nil {
			fmt.Fprint(out, tables[number].Text())
		}
	}
	return nil
}

func (o *Options) writeNotes(out io.Writer, name types.NamespacedName, result *compile.Result) {
	for _, note := range result.Notes {
		fmt.Fprintf(out, "# %s: %s\n", name, note)
	}
	if o.Elements.ForOne(result.Elements) < result.Elements {
		fmt.Fprintf(out, "# %s: %s\n", name, o.Elements.Beyond(result.Elements))
	}
	for _, refused := range result.Refused.Sentences(len(result.Refused.First)) {
		fmt.Fprintf(out, "# %s: %s\n", name, refused)
	}
}
