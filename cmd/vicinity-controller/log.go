package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-logr/logr"
)

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
