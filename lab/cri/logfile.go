package cri

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Logs have the format of the CRI: time, stream, F for a full line or P for a partial one, and
// the text.
const (
	logTime = time.RFC3339Nano
	logPart = 16 << 10
)

type logWriter struct {
	path string

	mu   sync.Mutex
	file *os.File
}

func openLog(path string) (*logWriter, error) {
	w := &logWriter{path: path}
	return w, w.open()
}

func (w *logWriter) open() error {
	file, err := os.OpenFile(w.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	w.file = file
	return nil
}

// Close closes the log.
func (w *logWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file.Close()
}

// logStream writes one output stream of a container to the log. It ignores write errors: they
// must not block the container.
type logStream struct {
	*logWriter
	name string
}

// ReadFrom writes lines to the log until the stream ends. [exec.Cmd] calls it.
func (s logStream) ReadFrom(from io.Reader) (int64, error) {
	reader := bufio.NewReaderSize(from, logPart)
	for {
		line, err := reader.ReadSlice('\n')
		if len(line) > 0 {
			_, _ = s.Write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, nil
		}
	}
}

// Write writes a line, or a part of one.
func (s logStream) Write(text []byte) (int, error) {
	tag := "F"
	if !bytes.HasSuffix(text, []byte("\n")) {
		tag = "P"
	}
	line := fmt.Appendf(nil, "%s %s %s %s\n", time.Now().UTC().Format(logTime), s.name, tag, bytes.TrimSuffix(text, []byte("\n")))
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.file.Write(line)
	return len(text), nil
}

// reopenLog is the signal that makes a keeper reopen its log after the kubelet renamed the file.
const reopenLog = unix.SIGUSR2

func (w *logWriter) reopen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	full := w.file
	if w.open() == nil {
		_ = full.Close()
	}
}
