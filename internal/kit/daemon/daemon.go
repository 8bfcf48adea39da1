// Package daemon is the common part of the programs that run in a cluster: how they start and end, log, and find the API server.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Main runs a program. The first signal ends it gracefully; a second one kills it.
func Main(command *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	command.SilenceUsage, command.SilenceErrors = true, true
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, command.Name()+": "+err.Error())
		os.Exit(1)
	}
}

var (
	logLevels  = []string{"debug", "info", "error"}
	logFormats = []string{"json", "text"}
)

// Log has the flags of logging.
type Log struct{ level, format string }

// AddFlags adds the flags.
func (l *Log) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "least important messages to log: "+strings.Join(logLevels, ", "))
	flags.StringVar(&l.format, "log-format", "json", "how to log: "+strings.Join(logFormats, ", "))
}

// Check returns an error about an unknown value.
func (l *Log) Check() error {
	switch {
	case !slices.Contains(logLevels, l.level):
		return fmt.Errorf("--log-level: %q is unknown; allowed are %s", l.level, strings.Join(logLevels, ", "))
	case !slices.Contains(logFormats, l.format):
		return fmt.Errorf("--log-format: %q is unknown; allowed are %s", l.format, strings.Join(logFormats, ", "))
	}
	return nil
}

// Logger returns a logger that writes to w.
func (l *Log) Logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: map[string]slog.Level{
		"debug": slog.LevelDebug - 4, "info": slog.LevelInfo, "error": slog.LevelError,
	}[l.level]}
	if l.format == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
}

// ErrOutside says that the program runs outside of a cluster and knows no API server.
var ErrOutside = errors.New("--kubeconfig: it is needed outside of a cluster, or else the KUBECONFIG variable")

// API returns the configuration of an API client: of a kubeconfig file, of an address, or else of the pod. Both may be empty.
func API(kubeconfig, address string) (*rest.Config, error) {
	var api *rest.Config
	var err error
	if kubeconfig == "" && address == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		api, err = rest.InClusterConfig()
	} else {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = kubeconfig
		overrides := &clientcmd.ConfigOverrides{}
		overrides.ClusterInfo.Server = address
		api, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	}
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, ErrOutside
	case err != nil:
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	return api, nil
}
