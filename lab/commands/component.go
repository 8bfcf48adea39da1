package commands

import (
	"context"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
)

func newLabComponentCommand(s command.Streams, f *labFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "component",
		Short: "Stop, start, kill and pause components of a lab",
		Long: `Component stops, kills, pauses and starts components of a lab, which "lab status" lists. A
vicinity-proxy is a pod: its node restarts it after a stop or kill.`,
		Example: `  vicinity lab component kill kube-apiserver
  vicinity lab component start kube-apiserver`,
	}
	verb := func(name, short string, done string, do func(*lab.Cluster, context.Context, string) error) {
		cmd.AddCommand(labVerb{
			name: name, short: short, what: "component", done: done,
			do: func(ctx context.Context, c *lab.Cluster, component string) error { return do(c, ctx, component) },
		}.command(s, f))
	}
	verb("start", "Start a stopped or killed component, and wait until it is ready", "started", (*lab.Cluster).StartComponent)
	verb("stop", "Stop a component in an orderly way", "stopped", (*lab.Cluster).StopComponent)
	verb("kill", "Kill a component at once, as a crash does", "killed", (*lab.Cluster).KillComponent)
	verb("pause", "Pause a component: it keeps its connections and does not answer", "paused", (*lab.Cluster).PauseComponent)
	verb("resume", "Resume a paused component", "resumed", (*lab.Cluster).ResumeComponent)
	return cmd
}
