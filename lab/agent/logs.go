package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type logOptions struct {
	follow, previous, timestamps bool
	tail                         int64 // lines; negative: all
	limit                        int64 // bytes; negative: no limit
	since                        time.Time
	stream                       string // stdout or stderr; empty: both
}

func parseLogOptions(q url.Values, now time.Time) (logOptions, error) {
	o := logOptions{tail: -1, limit: -1}
	var err error
	for name, to := range map[string]*bool{"follow": &o.follow, "previous": &o.previous, "timestamps": &o.timestamps} {
		if text := q.Get(name); text != "" {
			if *to, err = strconv.ParseBool(text); err != nil {
				return o, fmt.Errorf("%s %q: write true or false", name, text)
			}
		}
	}
	for name, to := range map[string]*int64{"tailLines": &o.tail, "limitBytes": &o.limit} {
		if text := q.Get(name); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil || *to < 0 {
				return o, fmt.Errorf("%s %q: write a number from 0 on", name, text)
			}
		}
	}
	if text := q.Get("sinceSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return o, fmt.Errorf("sinceSeconds %q: write a number from 1 on", text)
		}
		o.since = now.Add(-seconds(n))
	}
	if text := q.Get("sinceTime"); text != "" {
		if o.since, err = time.Parse(time.RFC3339, text); err != nil {
			return o, fmt.Errorf("sinceTime %q: write a time such as 2006-01-02T15:04:05Z", text)
		}
	}
	switch stream := q.Get("stream"); stream {
	case "", "All":
	case "Stdout", "Stderr":
		o.stream = strings.ToLower(stream)
	default:
		return o, fmt.Errorf("stream %q: write All, Stdout or Stderr", stream)
	}
	return o, nil
}

const logPoll = 50 * time.Millisecond

type logStream struct {
	logOptions
	path string
	to   io.Writer
	// ended reports whether nothing is written to the log any more.
	ended func() bool
	// begun, if any, is called once everything that was in the log has been copied, or
	// copying has failed.
	begun func()
}

// errLogFull ends a copy that has reached its limit.
var errLogFull = errors.New("the limit of bytes is reached")

func (s *logStream) copy(ctx context.Context) error {
	err := s.run(ctx)
	if errors.Is(err, errLogFull) {
		return nil
	}
	return err
}

func (s *logStream) run(ctx context.Context) error {
	begun := func() {}
	if s.begun != nil {
		begun = sync.OnceFunc(s.begun)
	}
	defer begun()
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	var next *os.File
	defer func() { closeAll([]*os.File{file, next}) }()
	reader := bufio.NewReaderSize(file, 2*logPart)
	partial, err := s.copyExisting(reader)
	begun()
	if err != nil || !s.follow {
		return err
	}
	for {
		// Asked before the read: what is written in between is read in the next round.
		ended := s.ended()
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
		if next != nil {
			_ = file.Close()
			file, next = next, nil
			reader.Reset(file)
			continue
		}
		// What was written between the end that was seen and the rotation comes first.
		if next = openReplacement(file, s.path); next != nil {
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

// copyExisting copies what the rotated log and the log hold. It returns the beginning of an
// incomplete line.
func (s *logStream) copyExisting(reader *bufio.Reader) (rest []byte, err error) {
	var kept [][]byte
	take := func(line []byte) error {
		if s.tail < 0 {
			return s.writeLine(line)
		}
		if s.matches(line) && s.tail > 0 {
			if int64(len(kept)) == s.tail {
				kept = kept[1:]
			}
			kept = append(kept, bytes.Clone(line))
		}
		return nil
	}
	if older, err := os.Open(olderLog(s.path)); err == nil {
		defer older.Close()
		if _, err := eachLine(bufio.NewReader(older), take); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if rest, err = eachLine(reader, take); err != nil {
		return nil, err
	}
	for _, line := range kept {
		if err := s.writeLine(line); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// eachLine calls f with each full line, and returns what follows the last one.
func eachLine(reader *bufio.Reader, f func([]byte) error) (rest []byte, err error) {
	for {
		line, err := reader.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return line, nil
		case err != nil:
			return nil, err
		}
		if err := f(line); err != nil {
			return nil, err
		}
	}
}

func splitLine(line []byte) (at, stream, tag, text []byte, ok bool) {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 {
		return nil, nil, nil, nil, false
	}
	return fields[0], fields[1], fields[2], fields[3], true
}

func (s *logStream) matches(line []byte) bool {
	at, stream, _, _, ok := splitLine(line)
	if !ok || s.stream != "" && s.stream != string(stream) {
		return false
	}
	if s.since.IsZero() {
		return true
	}
	written, err := time.Parse(logTime, string(at))
	return err == nil && !written.Before(s.since)
}

// writeLine writes a line of the log if it matches the options.
func (s *logStream) writeLine(line []byte) error {
	if !s.matches(line) {
		return nil
	}
	at, _, tag, text, _ := splitLine(line)
	if string(tag) == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if s.timestamps {
		text = append(append(bytes.Clone(at), ' '), text...)
	}
	if s.limit >= 0 && int64(len(text)) > s.limit {
		text = text[:s.limit]
	}
	if _, err := s.to.Write(text); err != nil {
		return err
	}
	if s.limit >= 0 {
		if s.limit -= int64(len(text)); s.limit == 0 {
			return errLogFull
		}
	}
	return nil
}

func logTail(path string, most int) string {
	var b bytes.Buffer
	s := logStream{logOptions: logOptions{tail: 80, limit: -1}, path: path, to: &b}
	if err := s.run(context.Background()); err != nil {
		return ""
	}
	return string(b.Bytes()[max(0, b.Len()-most):])
}
