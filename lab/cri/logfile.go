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

// A log has the format of other container runtimes: time, stream, F for a full line or P
// for a part of one, and the text.
const (
	logTime = time.RFC3339Nano
	logPart = 16 << 10
)

type logWriter struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	file *os.File
}

func openLog(path string) (*logWriter, error) {
	w := &logWriter{path: path, now: time.Now}
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

// copy writes the lines of a stream to the log until it ends. It ignores write errors, which must
// not block the container.
func (w *logWriter) copy(stream string, from io.Reader) {
	reader := bufio.NewReaderSize(from, logPart)
	for {
		line, err := reader.ReadSlice('\n')
		if len(line) > 0 {
			w.line(stream, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (w *logWriter) line(stream string, text []byte) {
	tag := "F"
	if !bytes.HasSuffix(text, []byte("\n")) {
		tag = "P"
	}
	line := fmt.Appendf(nil, "%s %s %s %s\n", w.now().UTC().Format(logTime), stream, tag, bytes.TrimSuffix(text, []byte("\n")))
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.file.Write(line)
}

// reopenLog is the signal that makes a keeper open its log anew: the kubelet has renamed it.
const reopenLog = unix.SIGUSR2

func (w *logWriter) reopen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	full := w.file
	if w.open() == nil {
		_ = full.Close()
	}
}
