package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/cli/manifest"
	"vicinity.dev/vicinity/internal/disruption/convert"
	"vicinity.dev/vicinity/internal/kit/command"
)

type convertFlags struct {
	files   []string
	zoneKey string
	groupBy string
	strict  bool
	output  outputFlag
}

func newConvertCommand(s command.Streams) *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Convert other budgets to TopologyDisruptionBudgets",
		Long: `Convert prints TopologyDisruptionBudgets for budgets of other kinds. Comments name each
difference: "allows more" evictions than the original, "refuses more", or "assumes" a fact
that is not in the manifests.

It reads PodDisruptionBudgets, ZoneAwarePodDisruptionBudgets of Grafana's rollout-operator and
ZoneDisruptionBudgets of AWS' zone-aware controllers: YAML or JSON, as kubectl prints them.

If a budget has no equivalent, a message says what to do, the others are printed, and the exit
code is 1.`,
		Example: `  kubectl get pdb,zpdb,zdb -A -o yaml | vicinity convert -f - > budgets.yaml
  vicinity convert -f zpdb.yaml --zone-key example.com/rack
  vicinity convert -f pdb.yaml -o json | kubectl apply -f -`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE` or directory of manifests, or - for standard input; can be repeated")
	flags.StringVar(&f.zoneKey, "zone-key", "", "`KEY` of the node label for the zone (default topology.kubernetes.io/zone)")
	flags.StringVar(&f.groupBy, "group-by", "", "`KEY` of the pod label that replaces podNamePartitionRegex (default apps.kubernetes.io/pod-index for the ordinal)")
	flags.BoolVar(&f.strict, "strict", false, "fail for budgets that allow more or assume something")
	f.output.add(flags, "yaml", "json")
	return cmd
}

func (f *convertFlags) run(ctx context.Context, s command.Streams) error {
	for flag, key := range map[string]string{"zone-key": f.zoneKey, "group-by": f.groupBy} {
		if reasons := validation.IsQualifiedName(key); key != "" && len(reasons) > 0 {
			return command.UsageErrorf("--%s %q is not a label key: %s", flag, key, reasons[0])
		}
	}
	c := converter{flags: f, passed: map[string]int{}}
	if err := manifest.ReadFiles(ctx, s.In, f.files, c.read); err != nil {
		return err
	}
	if len(c.passed) > 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(c.passed)) {
			kinds = append(kinds, fmt.Sprintf("%s (%d)", kind, c.passed[kind]))
		}
		fmt.Fprintln(s.Err, "ignored: "+strings.Join(kinds, ", "))
	}
	for _, err := range c.failures {
		fmt.Fprintln(s.Err, "not converted: "+command.OneLine(err))
	}
	if len(c.made) > 0 {
		write := writeConvertedYAML
		if f.output.form == "json" {
			write = writeConvertedJSON
		}
		if err := write(s, c.made); err != nil {
			return err
		}
	}
	switch n := int64(len(c.failures)); {
	case n > 0:
		return fmt.Errorf("%s not converted", count(n, "budget was", "budgets were"))
	case len(c.made) == 0:
		return errors.New("the manifests have no budget; convert reads " + convert.Kinds)
	}
	return nil
}

// converter goes on after a budget that it cannot convert.
type converter struct {
	flags    *convertFlags
	made     []*convert.Conversion
	failures []error
	passed   map[string]int // objects by kind
}

func (c *converter) read(name string, from io.Reader) error {
	return manifest.Walk(name, from, func(o manifest.Object) error {
		if !convert.Is(o.Kind) {
			c.passed[o.Kind.Kind+" of "+o.Kind.GroupVersion().String()]++
			return nil
		}
		made, err := convert.Convert(o.Kind, o.JSON, convert.Options{ZoneKey: c.flags.zoneKey, GroupBy: c.flags.groupBy})
		switch {
		case err != nil:
			c.failures = append(c.failures, o.Wrong(err))
		case c.flags.strict && made.IsWeaker():
			c.failures = append(c.failures, o.Wrong(fmt.Errorf("--strict: %s", weaknesses(made))))
		default:
			c.made = append(c.made, made)
		}
		return nil
	})
}

// weaknesses joins the notes for which a strict conversion fails.
func weaknesses(c *convert.Conversion) string {
	var texts []string
	for _, note := range c.Notes {
		if note.IsWeaker() {
			texts = append(texts, note.String())
		}
	}
	return strings.Join(texts, "; ")
}

// writtenBudget leaves out the status.
type writtenBudget struct {
	*v1alpha1.TopologyDisruptionBudget
	Status struct{} `json:"status,omitzero"`
}

func writeConvertedYAML(s command.Streams, made []*convert.Conversion) error {
	p := page{w: s.Out}
	for i, c := range made {
		text, err := yaml.Marshal(writtenBudget{TopologyDisruptionBudget: c.Budget})
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		if i > 0 {
			p.printf("---\n")
		}
		p.printf("# From %s.\n", c.Source)
		for _, note := range c.Notes {
			p.printf("# %s.\n", strings.TrimSuffix(note.String(), "."))
		}
		p.printf("%s", text)
	}
	return p.err
}

// writeConvertedJSON writes a list, as kubectl does, and the notes to standard error.
func writeConvertedJSON(s command.Streams, made []*convert.Conversion) error {
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Items           []writtenBudget `json:"items"`
	}{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, c := range made {
		list.Items = append(list.Items, writtenBudget{TopologyDisruptionBudget: c.Budget})
		for _, note := range c.Notes {
			fmt.Fprintf(s.Err, "%s: %s\n", c.Source, note)
		}
	}
	return encodeJSON(s.Out, list)
}
