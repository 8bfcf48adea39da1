package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

type load struct {
	to     netip.AddrPort
	from   netip.Addr
	file   string // of queries
	length time.Duration
	// rate is the number of queries per second, or 0 for as many as are answered. dnsperf reports
	// latencies only with a rate, since that takes time.
	rate int
}

const (
	// Numbers of sockets of dnsperf, and of its outstanding queries.
	sockets, outstanding = 10, 100
	// answerTime is the timeout of a query in seconds.
	answerTime = 2
	// maxLost is the greatest share of lost queries in valid figures.
	maxLost = 0.01
)

func (l load) run(ctx context.Context) (answers, error) {
	args := []string{
		"-s", l.to.Addr().String(), "-p", fmt.Sprint(l.to.Port()), "-a", l.from.String(), "-d", l.file, "-l", fmt.Sprintf("%.1f", l.length.Seconds()),
		"-c", fmt.Sprint(sockets), "-q", fmt.Sprint(outstanding), "-t", fmt.Sprint(answerTime), "-T", "1",
	}
	if l.rate > 0 {
		args = append(args, "-Q", fmt.Sprint(l.rate), "-v")
	}
	command := exec.CommandContext(ctx, "dnsperf", args...)
	var output, complaints bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaints
	if err := command.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return answers{}, fmt.Errorf("%w; it is in the package dnsperf of Debian", err)
		}
		return answers{}, fmt.Errorf("dnsperf: %w: %s", err, strings.TrimSpace(complaints.String()))
	}
	a, err := readAnswers(&output)
	if err != nil {
		return a, err
	}
	return a, a.check()
}

type answers struct {
	sent, completed, lost int
	perSecond             float64
	// codes counts answers by code.
	codes map[string]int
	// latencies has the latencies of all answers, if dnsperf reported them.
	latencies []time.Duration
}

func (a *answers) check() error {
	if float64(a.lost) > maxLost*float64(a.sent) {
		return fmt.Errorf("%d of %d queries got no answer within %d s", a.lost, a.sent, answerTime)
	}
	for code, n := range a.codes {
		if code != "NOERROR" && code != "NXDOMAIN" {
			return fmt.Errorf("%d of %d answers are %s", n, a.completed, code)
		}
	}
	return nil
}

func (a *answers) p99() time.Duration { return meter.Quantile(a.latencies, 0.99) }

func readAnswers(output io.Reader) (answers, error) {
	a := answers{codes: map[string]int{}}
	found := map[string]bool{}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if query, ok := strings.CutPrefix(line, "> "); ok {
			// The fields are the code, the name, the type, and the latency in seconds. The code of an
			// unanswered query is T.
			fields := strings.Fields(query)
			if len(fields) != 4 {
				continue
			}
			seconds, err := strconv.ParseFloat(fields[3], 64)
			if err != nil {
				return a, fmt.Errorf("dnsperf printed %q: %w", line, err)
			}
			a.latencies = append(a.latencies, time.Duration(seconds*float64(time.Second)))
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if !ok || len(fields) == 0 {
			continue
		}
		var err error
		switch name {
		case "Queries sent":
			a.sent, err = strconv.Atoi(fields[0])
		case "Queries completed":
			a.completed, err = strconv.Atoi(fields[0])
		case "Queries lost":
			a.lost, err = strconv.Atoi(fields[0])
		case "Queries per second":
			a.perSecond, err = strconv.ParseFloat(fields[0], 64)
		case "Response codes":
			err = a.readCodes(value)
		default:
			continue
		}
		if err != nil {
			return a, fmt.Errorf("dnsperf printed %q: %w", line, err)
		}
		found[name] = true
	}
	if err := lines.Err(); err != nil {
		return a, fmt.Errorf("reading the output of dnsperf: %w", err)
	}
	for _, name := range []string{"Queries sent", "Queries completed", "Queries lost", "Queries per second"} {
		if !found[name] {
			return a, fmt.Errorf("dnsperf did not print %q", name)
		}
	}
	return a, nil
}

// readCodes reads a list such as "NOERROR 5 (50.00%), NXDOMAIN 5 (50.00%)".
func (a *answers) readCodes(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		fields := strings.Fields(part)
		if len(fields) < 2 {
			return fmt.Errorf("%q is not a code with a number", part)
		}
		n, err := strconv.Atoi(fields[1])
		if err != nil {
			return err
		}
		a.codes[fields[0]] = n
	}
	return nil
}
