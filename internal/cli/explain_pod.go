package cli

import (
	"context"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
)

// runPod calls no webhook: it decides by the same function as the webhook.
func (f *explainFlags) runPod(ctx context.Context, s command.Streams, reach connector, name string) error {
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
