// Command vulncheck looks for known vulnerabilities in what the programs of Vicinity are linked from, by the pinned
// govulncheck. It fails for each that it finds.
//
// The database of the Go project is on the internet, where not every machine may go. Where it cannot be reached nothing is
// checked: that is said, and is a failure with -strict alone. A database that answers, and not as one, is a failure always. GOVULNDB names
// another one.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	defaultDatabase = "https://vuln.go.dev"
	// reachTime is how long the database may take to answer.
	reachTime = 10 * time.Second
)

// options are what to check, and by what.
type options struct {
	tool, scan, database string
	strict               bool
	// folder is that of the module, and patterns are the packages.
	folder   string
	patterns []string
}

func main() {
	o := options{database: cmp.Or(os.Getenv("GOVULNDB"), defaultDatabase)}
	flag.StringVar(&o.tool, "tool", "govulncheck", "`program` that looks")
	flag.StringVar(&o.scan, "scan", "package", "what counts as used: module, package, or symbol, which takes minutes")
	flag.BoolVar(&o.strict, "strict", false, "fail where the database cannot be reached")
	flag.Parse()
	if o.patterns = flag.Args(); len(o.patterns) == 0 {
		o.patterns = []string{"./cmd/..."}
	}
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

// errUnreachable is a database that did not answer, which says nothing about what would be found.
type errUnreachable struct{ cause error }

func (e errUnreachable) Error() string { return e.cause.Error() }

func run(ctx context.Context, o options, out io.Writer) error {
	err := reach(ctx, o.database)
	var unreachable errUnreachable
	switch {
	case errors.As(err, &unreachable) && o.strict:
		return fmt.Errorf("nothing was checked: the database %s cannot be reached: %w", o.database, err)
	case errors.As(err, &unreachable):
		fmt.Fprintf(out, "vulncheck: NOT CHECKED: the database %s cannot be reached: %v. Set GOVULNDB to one that can, or STRICT=1 to fail here.\n", o.database, err)
		return nil
	case err != nil:
		return fmt.Errorf("GOVULNDB: %s is no database of vulnerabilities: %w", o.database, err)
	}
	command := exec.CommandContext(ctx, o.tool, append([]string{"-db", o.database, "-scan", o.scan}, o.patterns...)...)
	var output bytes.Buffer
	both := io.MultiWriter(out, &output)
	command.Dir, command.Stdout, command.Stderr = o.folder, both, both
	err = command.Run()
	var exit *exec.ExitError
	const found = 3 // as govulncheck documents it
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == found:
		return fmt.Errorf("there are known vulnerabilities in what is linked, by %s: see above. Take the version that they are fixed in", o.database)
	case err != nil:
		return fmt.Errorf("running %s: %w", o.tool, err)
	case !bytes.Contains(output.Bytes(), []byte("No vulnerabilities found")):
		// Its main may return 0 while what it runs beside that panics.
		return fmt.Errorf("%s ended before it said what it found: nothing is known of what is linked", o.tool)
	}
	fmt.Fprintf(out, "vulncheck: no known vulnerability, by %s with -scan %s\n", o.database, o.scan)
	return nil
}

// index is what each database has.
const index = "index/db.json"

// reach asks a database for what each of them has.
func reach(ctx context.Context, database string) error {
	at, err := url.Parse(database)
	if err != nil {
		return err
	}
	switch at.Scheme {
	case "file":
		_, err := os.Stat(filepath.Join(filepath.FromSlash(at.Path), filepath.FromSlash(index)))
		return err
	case "http", "https":
	default:
		return fmt.Errorf("its scheme must be https, http or file, not %q", at.Scheme)
	}
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(database, "/")+"/"+index, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return errUnreachable{err}
	}
	defer response.Body.Close()
	switch code := response.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusForbidden, code == http.StatusProxyAuthRequired, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return errUnreachable{fmt.Errorf("it answers %s", response.Status)}
	default:
		return fmt.Errorf("it answers %s", response.Status)
	}
}
