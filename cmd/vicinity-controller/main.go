// Command vicinity-controller decides which endpoints the clients of each zone use, and writes that
// where proxies read it. It also serves admission webhooks.
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
	// After the first signal the program finishes; a second one kills it.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vicinity-controller: "+err.Error())
		os.Exit(1)
	}
}

// logConfig has the flags of logging.
type logConfig struct {
	level, format string
}

// Allowed values of flags.
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

// logger returns a logger that writes to w.
func (c logConfig) logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: map[string]slog.Level{
		"debug": slog.LevelDebug - 4, "info": slog.LevelInfo, "error": slog.LevelError,
	}[c.level]}
	if c.format == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
}
