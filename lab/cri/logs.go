package cri

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

const logPoll = 50 * time.Millisecond

// logStream copies the text of a log.
type logStream struct {
	path string
	to   io.Writer
	// stream is stdout or stderr; empty means both.
	stream string
	// follow copies what is written from now on, until the log has ended or the context
	// ends, instead of what is there.
	follow bool
	// ended reports whether nothing is written to the log any more.
	ended func() bool
	// begun is called once the end of the log was found, or copying has failed.
	begun func()
}

func (s *logStream) copy(ctx context.Context) error {
	begun := func() {}
	if s.begun != nil {
		begun = sync.OnceFunc(s.begun)
	}
	defer begun()
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	reader := bufio.NewReaderSize(file, 2*logPart)
	if s.follow {
		if _, err := file.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	begun()
	var partial []byte
	for {
		// Asked before the read: what is written in between is read in the next round.
		ended := !s.follow || s.ended()
		line, err := reader.ReadBytes('\n')
		partial = append(partial, line...)
		switch {
		case err == nil:
			if err := s.writeLine(partial); err != nil {
				return err
			}
			partial = partial[:0]
			continue
		case !errors.Is(err, io.EOF):
			return err
		}
		if next := openReplacement(file, s.path); next != nil {
			// What was written between the end that was seen and the rotation comes first.
			rest, err := io.ReadAll(reader)
			if err != nil {
				return errors.Join(err, next.Close())
			}
			for line := range bytes.Lines(append(partial, rest...)) {
				if err := s.writeLine(line); err != nil {
					return errors.Join(err, next.Close())
				}
			}
			partial = partial[:0]
			_ = file.Close()
			file = next
			reader.Reset(file)
			continue
		}
		if ended || !sleep(ctx, logPoll) {
			return nil
		}
	}
}

// openReplacement opens the log again if it was rotated, else returns nil.
func openReplacement(file *os.File, path string) *os.File {
	have, err := file.Stat()
	if err != nil {
		return nil
	}
	if now, err := os.Stat(path); err != nil || os.SameFile(have, now) {
		return nil
	}
	next, err := os.Open(path)
	if err != nil {
		return nil
	}
	return next
}

// writeLine writes the text of a line, if it is of the stream.
func (s *logStream) writeLine(line []byte) error {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 || s.stream != "" && s.stream != string(fields[1]) {
		return nil
	}
	text := fields[3]
	if string(fields[2]) == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	_, err := s.to.Write(text)
	return err
}

// sleep reports false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
