package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
)

var podKinds = []string{"po", "pod", "pods"}

func isPodKind(word string) bool { return slices.Contains(podKinds, strings.ToLower(word)) }

func asksForPod(args []string) bool {
	kind, _, qualified := strings.Cut(strings.Join(args, "/"), "/")
	return qualified && isPodKind(kind)
}

// runPod calls no webhook: it decides by the same function as the webhook.
func (f *explainFlags) runPod(ctx context.Context, s command.Streams, reach connector, args []string) error {
	if f.all {
		return command.UsageErrorf("--all is for Services only")
	}
	_, name, _ := strings.Cut(strings.Join(args, "/"), "/")
	if name == "" || strings.Contains(name, "/") {
		return command.UsageErrorf("%q names no pod; give pod/NAME, with -n for its namespace", strings.Join(args, " "))
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	p := podReader{clusterReader: r}
	if err := p.read(ctx, name); err != nil {
		return err
	}
	p.in.Unread, p.in.Now = r.unread, r.now
	e := inspect.ExplainPod(&p.in)
	e.NotKnown = append(e.NotKnown, r.notKnown...)
	return f.output.write(s.Out, e, func(p *page) { writePod(p, e) })
}

// podNotFound names the pods of the namespace. hint is added if the namespace does not exist.
func (r *clusterReader) podNotFound(ctx context.Context, name, hint string) error {
	missing := fmt.Sprintf("no pod %q is in namespace %q", name, r.namespace)
	names, err := r.podNames(ctx)
	if err != nil {
		return fmt.Errorf("%s", missing) // the names are optional
	}
	if len(names) == 0 {
		err := r.expectNamespace(ctx, r.namespace)
		if err != nil && hint != "" {
			return fmt.Errorf("%w: %s", err, hint)
		}
		if err != nil {
			return err
		}
	}
	slices.Sort(names)
	return fmt.Errorf("%s; %s", missing, listed(names, "it has none"))
}
