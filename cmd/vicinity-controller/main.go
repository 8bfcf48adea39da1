// Command vicinity-controller routes the traffic of Services by topology: it decides
// which endpoints the clients of each zone use, and writes that where proxies read it.
// It also serves the admission webhooks that keep and check what it and users write.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks the program to finish; a second one ends it.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vicinity-controller: "+err.Error())
		os.Exit(1)
	}
}

// logConfig says what is logged, and how.
type logConfig struct {
	level, format string
}

// The allowed values of flags.
var (
	logLevels  = []string{"debug", "info", "error"}
	logFormats = []string{"json", "text"}
)

func (c logConfig) check() error {
	if !slices.Contains(logLevels, c.level) {
		return fmt.Errorf("--log-level: %q is unknown; allowed are %s", c.level, strings.Join(logLevels, ", "))
	}
	if !slices.Contains(logFormats, c.format) {
		return fmt.Errorf("--log-format: %q is unknown; allowed are %s", c.format, strings.Join(logFormats, ", "))
	}
	return nil
}

// logger writes to w.
func (c logConfig) logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: map[string]slog.Level{
		"debug": slog.LevelDebug - 4, "info": slog.LevelInfo, "error": slog.LevelError,
	}[c.level]}
	if c.format == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
}
