package meter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// Run is a run of a benchmark, with its own lab and folder. Both are removed at its end.
type Run struct {
	// Name is the benchmark's name. Folder has files of the run.
	Name, Folder string
	// Machine describes the machine.
	Machine string
	// Cluster is the lab that Up has brought up, Client its client, and API a client that writes many
	// objects fast.
	Cluster *lab.Cluster
	Client  *lab.Client
	API     kubernetes.Interface
	// Lost ends the run with an error.
	Lost context.CancelCauseFunc

	begun time.Time
}

// Main runs a benchmark with the arguments of this program, and prints its figures. name is the name
// of the flag set.
func Main(flags *flag.FlagSet, measure func(context.Context, *Run) (fmt.Stringer, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	r := &Run{Name: flags.Name(), begun: time.Now()}
	if err := r.run(ctx, flags, measure); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", r.Name, err)
		os.Exit(1)
	}
}

func (r *Run) run(ctx context.Context, flags *flag.FlagSet, measure func(context.Context, *Run) (fmt.Stringer, error)) (err error) {
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: only flags are allowed", flags.Arg(0))
	}
	if r.Machine, err = describeMachine(); err != nil {
		return err
	}
	if r.Folder, err = os.MkdirTemp("", r.Name+"-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.Folder)) }()
	defer func() { err = errors.Join(err, r.takeDown(ctx)) }()
	ctx, r.Lost = context.WithCancelCause(ctx)
	defer r.Lost(nil)
	figures, err := measure(ctx, r)
	if err != nil {
		return err
	}
	r.Say("done")
	_, err = fmt.Print(figures)
	return err
}

func (r *Run) takeDown(ctx context.Context) error {
	if r.Cluster == nil {
		return nil
	}
	// The lab is removed even if the context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return r.Cluster.Down(ctx)
}

// Program returns the path of a built program.
func (r *Run) Program(name string) (string, error) { return filepath.Abs(filepath.Join("bin", name)) }

// Say prints a step of the run, with the time since its start.
func (r *Run) Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(r.begun).Seconds(), fmt.Sprintf(format, args...))
}

// Rest waits until the machine is quiet: after thousands of writes, the control plane is busy for a
// while.
func (r *Run) Rest(ctx context.Context) error {
	r.Say("wait until the machine is quiet")
	calm, err := isQuiet(ctx)
	if err == nil && !calm {
		r.Say("other programs keep the machine busy")
	}
	return err
}

// Up brings the lab up. change, if set, changes its shape.
func (r *Run) Up(ctx context.Context, o shape.Options, change func(*shape.Shape)) error {
	o.Name = fmt.Sprintf("%s-%d", r.Name, os.Getpid())
	wanted, err := shape.FromOptions(o)
	if err != nil {
		return err
	}
	if change != nil {
		change(&wanted)
	}
	program, err := r.Program("vicinity-lab")
	if err != nil {
		return err
	}
	if r.Cluster, err = lab.Up(ctx, wanted, lab.Options{Root: r.Folder, Program: program}); err != nil {
		return fmt.Errorf("bringing a lab up: %w", err)
	}
	if r.Client, err = r.Cluster.Client(); err != nil {
		return err
	}
	config := r.Client.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	r.API, err = kubernetes.NewForConfig(config)
	return err
}

// CreateNamespace creates a namespace.
func (r *Run) CreateNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := r.API.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

// CreateService creates a Service with its slices.
func (r *Run) CreateService(ctx context.Context, service *corev1.Service, slices ...*discoveryv1.EndpointSlice) error {
	if _, err := r.API.CoreV1().Services(service.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, slice := range slices {
		if _, err := r.API.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// Size returns the size that the flag -size names.
func Size[T any](sizes map[string]T, name string) (T, error) {
	size, found := sizes[name]
	if !found {
		return size, fmt.Errorf("-size: %q is unknown; it must be short or full", name)
	}
	return size, nil
}

// FreeAddress returns an unused address of the host.
func FreeAddress(ctx context.Context) (netip.AddrPort, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	address, err := netip.ParseAddrPort(listener.Addr().String())
	return address, errors.Join(err, listener.Close())
}

// Page reads a page of a server through a transport, or nil for the default one.
func Page(ctx context.Context, transport http.RoundTripper, from netip.AddrPort, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+from.String()+path, nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return string(body), err
}

// Table formats figures; the first row has the titles.
func Table(rows [][]string) string {
	table := plaintext.Table{Rows: rows[1:]}
	for _, title := range rows[0] {
		table.Columns = append(table.Columns, plaintext.Column{Title: title})
	}
	var b strings.Builder
	_ = table.Text(&b, "") // a strings.Builder never fails
	return b.String()
}
