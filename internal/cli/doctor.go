package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"unicode"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/internal/kit/command"
)

// Exit codes of doctor other than 0.
const (
	exitProblems     = 1
	exitCouldNotLook = 2
)

type doctorFlags struct {
	cluster clusterFlags
	loss    lossFlags
	output  outputFlag
}

func newDoctorCommand(s command.Streams, reach connector) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find faults in a cluster, and say what to do",
		Long: `Doctor finds faults of a cluster: of its nodes, zones, proxies and clocks, of the parts of
Vicinity, of Services and budgets, and leftovers of an uninstall. It works without Vicinity.

A problem does not work. A warning works otherwise than intended, or soon will not. A notice is
not a fault. docs/doctor.md lists all findings.

It only reads, with your rights, and names what it may not read. To test the webhooks through the
API server, it needs "get" of "services/proxy".

With --lose it rehearses the loss of a zone instead: what fails, which pods stay pending, and how
much room there is. With -f it reads manifests, as kubectl prints them, and needs no cluster.

The exit code is 0 without a problem, 1 with a problem, and 2 if the cluster cannot be read.`,
		Example: `  vicinity doctor
  vicinity doctor -o json
  vicinity doctor --lose zone-a
  vicinity doctor --lose zone-a -f cluster.yaml --max-overload 100`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.loss.asked = cmd.Flags().Changed("lose")
			if err := f.loss.check(cmd.Flags()); err != nil {
				return err
			}
			return f.run(cmd.Context(), s, reach)
		},
	}
	flags := cmd.Flags()
	f.cluster.add(flags, "`NAMESPACE` of Vicinity (default: look in all)")
	f.loss.add(flags)
	f.output.add(flags, "text", "json", "yaml")
	return cmd
}

func (f *doctorFlags) run(ctx context.Context, s command.Streams, reach connector) error {
	report, err := f.report(ctx, s, reach)
	if err != nil {
		return couldNotLook(ctx, err)
	}
	if f.output.form == "text" {
		for _, sentence := range report.NotKnown {
			fmt.Fprintln(printable{s.Err}, sentence)
		}
	}
	if err := f.output.write(s.Out, report, func(p *page) { doctorText(p, report) }); err != nil {
		return err
	}
	if report.Problems > 0 {
		return &command.ExitError{Code: exitProblems, Err: fmt.Errorf("%s found", count(int64(report.Problems), "problem", "problems"))}
	}
	return nil
}

func (f *doctorFlags) report(ctx context.Context, s command.Streams, reach connector) (*doctor.Report, error) {
	if len(f.loss.files) > 0 {
		return f.loss.rehearseManifests(ctx, s)
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return nil, err
	}
	if f.loss.asked {
		return f.loss.rehearse(ctx, r, nil)
	}
	reading, err := r.examined(ctx, f.cluster.namespace)
	if err != nil {
		return nil, err
	}
	return doctor.Examine(reading), nil
}

// couldNotLook gives an error the exit code of a cluster that could not be read. An interrupt keeps
// its own.
func couldNotLook(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &command.ExitError{Code: exitCouldNotLook, Err: err}
}

// mostAlike limits the findings of one kind that are shown in full.
const mostAlike = 3

func doctorText(p *page, report *doctor.Report) {
	p.w = printable{p.w}
	if report.Loss != nil {
		p.printf("%s", report.Loss.Lines())
	} else {
		clusterText(p, &report.Cluster)
	}
	findingsText(p, report)
}

func clusterText(p *page, c *doctor.Cluster) {
	p.printf("Kubernetes %s: %s in %s, %s\n", orDash(c.Kubernetes), count(int64(c.Nodes), "node", "nodes"), count(int64(len(c.Zones)), "zone", "zones"),
		count(int64(c.Services), "Service", "Services"))
	for _, part := range append(c.Parts, c.Proxies...) {
		version, mode := part.Version, ""
		if version != "" {
			version = " " + version
		}
		if part.Mode != "" {
			mode = ", mode " + part.Mode
		}
		p.printf("%s%s: %s, %d of %d ready%s\n", part.Name, version, part.Object, part.Ready, part.Wanted, mode)
	}
}

func findingsText(p *page, report *doctor.Report) {
	for i := 0; i < len(report.Findings); {
		alike := 1
		for i+alike < len(report.Findings) && report.Findings[i+alike].ID == report.Findings[i].ID {
			alike++
		}
		for j := range min(alike, mostAlike) {
			finding := &report.Findings[i+j]
			p.printf("\n%s %s: %s\n", finding.Severity, finding.ID, finding.Object)
			p.printf("  %s\n  why:  %s\n  next: %s\n  see:  %s\n", finding.What, finding.Why, finding.Next, finding.Runbook)
		}
		if more := alike - mostAlike; more > 0 {
			p.printf("\n%s %s: %d more; -o json has all\n", report.Findings[i].Severity, report.Findings[i].ID, more)
		}
		i += alike
	}
	p.printf("\n%s, %s, %s\n", count(int64(report.Problems), "problem", "problems"), count(int64(report.Warnings), "warning", "warnings"),
		count(int64(report.Notices), "notice", "notices"))
}

// printable replaces characters that could control a terminal: users write some of the reported text.
type printable struct{ w io.Writer }

func (p printable) Write(text []byte) (int, error) {
	shown := bytes.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
	if _, err := p.w.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}
