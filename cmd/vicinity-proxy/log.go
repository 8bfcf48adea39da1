package main

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
)

type logConfig struct {
	level, format string
}

var (
	logLevels  = []string{"debug", "info", "error"}
	logFormats = []string{"json", "text"}
)

func (c logConfig) logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: map[string]slog.Level{
		"debug": slog.LevelDebug - 4, "info": slog.LevelInfo, "error": slog.LevelError,
	}[c.level]}
	if c.format == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
}
