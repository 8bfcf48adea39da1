package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
)

const (
	shiftResource = "zoneshifts"
	// These are the limits of spec.for, spec.ramp and spec.drainConnections, spec.maxOverload and spec.reason.
	shortestShift, longestShift = time.Minute, 72 * time.Hour
	longestRamp                 = time.Hour
	greatestOverload            = 10000
	longestReason               = 512
	// acceptanceTimeout is how long a running controller may need to accept or refuse a ZoneShift.
	acceptanceTimeout = 30 * time.Second
)

// shiftRun is a run of a command for ZoneShifts.
type shiftRun struct {
	*clusterReader
	cluster  clusterFlags
	output   outputFlag
	domain   string // as the user wrote it
	name     string // of the ZoneShift
	out, err io.Writer
	line     string // the last one that was written
}

// shiftCommand completes a command for ZoneShifts, with the flag --output if it has forms.
func (c connector) shiftCommand(s command.Streams, cmd *cobra.Command, run func(context.Context, *shiftRun) error, forms ...string) *cobra.Command {
	r := &shiftRun{out: printable{s.Out}, err: s.Err}
	if len(forms) > 0 {
		r.output.add(cmd.Flags(), forms...)
	}
	r.cluster.addConnection(cmd.Flags())
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = c.complete(shiftResource)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if r.clusterReader, err = c.reader(&r.cluster); err != nil {
			return err
		}
		r.namespace, r.domain = metav1.NamespaceAll, strings.Join(args, "")
		r.name = shiftName(r.domain)
		return run(cmd.Context(), r)
	}
	return cmd
}

// shiftFlags are the flags that make a ZoneShift.
type shiftFlags struct {
	spec v1alpha1.ZoneShiftSpec
	yes  bool
}

func (f *shiftFlags) add(flags *pflag.FlagSet) {
	spec := &f.spec
	spec.Ramp, spec.MaxOverload = &metav1.Duration{Duration: time.Minute}, 50
	flags.Func("for", "`DURATION` of the shift, from 1m to 72h", durationFlag(&spec.For.Duration, shortestShift, longestShift))
	flags.StringVar(&spec.Reason, "reason", "", "`TEXT` that says why, for those who find the ZoneShift")
	flags.StringVar(&spec.From.Key, "key", topology.Zone, "`KEY` of the node label that has the value ZONE")
	flags.Func("ramp", "`DURATION` that endpoints of Services that vicinity-proxy serves take to leave and to come back, at most 1h (default 1m)",
		durationFlag(&spec.Ramp.Duration, 0, longestRamp))
	flags.Func("drain-connections", "`DURATION` after the ramp, at most 1h, when connections to these endpoints end (default never)", func(text string) error {
		spec.DrainConnections = new(metav1.Duration)
		return durationFlag(&spec.DrainConnections.Duration, 0, longestRamp)(text)
	})
	flags.Func("max-overload", "`PERCENT` of load that other endpoints may get on top; Services beyond it yield (default 50)", overloadFlag(&spec.MaxOverload))
	flags.Func("selector", "`LABELS` of the Services that move, as in kubectl get --selector (default all)", selectorFlag(&spec.Services.Selector))
	flags.Func("namespace-selector", "`LABELS` of the namespaces of these Services (default all)", selectorFlag(&spec.Services.NamespaceSelector))
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	command.Share(flags, "Shift flags", "for", "reason", "key", "ramp", "drain-connections", "max-overload", "selector", "namespace-selector", "yes")
}

// check checks the flags of a command that asks, or does not.
func (f *shiftFlags) check(s command.Streams, asks bool) error {
	switch spec := &f.spec; {
	case spec.For.Duration == 0:
		return errors.New("--for is missing; it must be from 1m to 72h, such as --for 1h")
	case strings.TrimSpace(spec.Reason) == "":
		return errors.New("--reason is missing; it says why the zone leaves, such as --reason \"packet loss\"")
	case utf8.RuneCountInString(spec.Reason) > longestReason:
		return fmt.Errorf("--reason %q is not allowed; it must have at most %d characters", plaintext.Cut(spec.Reason, 40), longestReason)
	case spec.DrainConnections != nil && spec.Ramp.Duration+spec.DrainConnections.Duration >= spec.For.Duration:
		return fmt.Errorf("--drain-connections %s ends no connection: with --ramp %s it is not before the end of --for %s; give a shorter time",
			plaintext.Span(spec.DrainConnections.Duration), plaintext.Span(spec.Ramp.Duration), plaintext.Span(spec.For.Duration))
	case asks && !f.yes && !isTerminal(s.In):
		return errors.New("standard input is no terminal, so the command cannot ask; look at the result of \"vicinity shift --dry-run\", then give --yes")
	}
	return nil
}

// shift returns a ZoneShift of the run's domain that begins now.
func (f *shiftFlags) shift(r *shiftRun) *v1alpha1.ZoneShift {
	f.spec.From.Value = r.domain
	return &v1alpha1.ZoneShift{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ZoneShift"},
		ObjectMeta: metav1.ObjectMeta{Name: r.name, CreationTimestamp: metav1.NewTime(r.now)}, Spec: f.spec,
	}
}

func newShiftCommand(s command.Streams, reach connector) *cobra.Command {
	var f shiftFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "shift ZONE --for DURATION --reason TEXT",
		Short: "Take a zone out of service for a while, and bring it back",
		Long: `Shift creates a ZoneShift: until it ends, new connections go to endpoints outside ZONE. First
it shows which Services move and how much load their other endpoints get on top, which Services
yield because that load is too high, and which ones stay for other reasons. Then it asks.

It prints a line for each change until the shift is in force. Ctrl-C ends only the command. The
exit code is 1 if the shift is refused or not confirmed, and if no controller accepts it within
30 seconds. docs/reference/permissions.md lists the permissions.`,
		Example: `  vicinity shift zone-a --for 1h --reason "packet loss" --dry-run
  vicinity shift zone-a --for 1h --reason "packet loss"
  vicinity shift back zone-a`,
		Args:              oneName("zone"),
		PreRunE:           func(*cobra.Command, []string) error { return f.check(s, !dryRun) },
		ValidArgsFunction: reach.complete("zones"),
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what the shift would do, and write nothing")
	reach.shiftCommand(s, cmd, func(ctx context.Context, r *shiftRun) error {
		zs := f.shift(r)
		preview, err := r.preview(ctx, zs)
		if err != nil {
			return err
		}
		r.printMissing(s)
		if err := r.output.write(r.out, preview, preview.writeText); err != nil || dryRun && preview.Refused == "" {
			return err
		}
		if err := f.confirm(ctx, s, preview); err != nil {
			return err
		}
		if r.output.form != "text" {
			r.out = printable{s.Err}
		}
		created, err := r.create(ctx, zs)
		switch {
		case errors.Is(err, errShiftUnread):
			return fmt.Errorf("%w. The shift begins once a controller runs; \"vicinity shift back %s\" prevents that", err, r.name)
		case created != nil && errors.Is(err, context.Canceled):
			fmt.Fprintf(r.err, "The shift goes on without this command. %s\n", r.commands())
		}
		return err
	}, "text", "json", "yaml")
	cmd.AddCommand(newShiftStatusCommand(s, reach), newShiftExtendCommand(s, reach), newShiftBackCommand(s, reach))
	return cmd
}

// confirm fails if a shift would be refused, or the user does not want it.
func (f *shiftFlags) confirm(ctx context.Context, s command.Streams, preview *shiftPreview) error {
	if preview.Refused != "" {
		return errors.New("the shift would be refused, so nothing was changed")
	}
	if f.yes {
		return nil
	}
	return confirm(ctx, s, "Shift "+f.spec.From.Value+"?")
}

func selectorFlag(selector **metav1.LabelSelector) func(string) error {
	return func(text string) (err error) {
		*selector, err = metav1.ParseToLabelSelector(text)
		return err
	}
}

// durationFlag reads a duration within limits.
func durationFlag(d *time.Duration, least, most time.Duration) func(string) error {
	return func(text string) (err error) {
		if *d, err = time.ParseDuration(text); err != nil || *d < least || *d > most {
			return fmt.Errorf("it must be from %s to %s", plaintext.Span(least), plaintext.Span(most))
		}
		return nil
	}
}

// overloadFlag reads how much load endpoints may get on top.
func overloadFlag(percent *int32) func(string) error {
	return func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		if *percent = int32(n); err != nil || n < 1 || n > greatestOverload {
			return fmt.Errorf("it must be from 1 to %d", greatestOverload)
		}
		return nil
	}
}

var (
	notInNames = regexp.MustCompile("[^a-z0-9.-]+")
	dotInNames = regexp.MustCompile(`-*\.[.-]*`)
)

// shiftName makes the name of an object from the value of a label. It keeps a name that an object can have.
func shiftName(value string) string {
	name := notInNames.ReplaceAllString(strings.ToLower(value), "-")
	return strings.Trim(dotInNames.ReplaceAllString(name, "."), "-.")
}

func isTerminal(in io.Reader) bool {
	if file, isFile := in.(*os.File); isFile {
		info, err := file.Stat()
		return err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return false
}

// confirm asks a question, and fails unless the answer is yes.
func confirm(ctx context.Context, s command.Streams, question string) error {
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(command.Interruptible(ctx, s.In)).ReadString('\n') // after an error it is no yes
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) && ctx.Err() == nil {
		return errors.New("the answer is not yes, so nothing was changed")
	}
	return ctx.Err()
}

func (r *clusterReader) shifts() dynamic.ResourceInterface {
	return r.dynamic.Resource(v1alpha1.GroupVersion.WithResource(shiftResource))
}

// read returns the ZoneShift. With an error, lasting says that reading it again fails, too.
func (r *shiftRun) read(ctx context.Context) (zs *v1alpha1.ZoneShift, lasting bool, err error) {
	object, err := r.shifts().Get(ctx, r.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, fmt.Errorf("no ZoneShift %q is in the cluster; \"vicinity shift status\" lists them", r.name)
	case err != nil:
		return nil, isLasting(err), r.explained("reading ZoneShift "+r.name, err)
	}
	zs, err = convertTo[v1alpha1.ZoneShift](object)
	return zs, err != nil, err
}

// print writes a line if it is new.
func (r *shiftRun) print(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); line != r.line {
		r.line = line
		fmt.Fprintln(r.out, line)
	}
}

// errShiftUnread ends the error of a ZoneShift that no controller has read.
var errShiftUnread = errors.New("\"kubectl vicinity doctor\" says what is wrong")

// create creates a ZoneShift, and follows it until it is in force. It returns the ZoneShift also with an error, if it exists now.
func (r *shiftRun) create(ctx context.Context, zs *v1alpha1.ZoneShift) (created *v1alpha1.ZoneShift, err error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(zs)
	if err != nil {
		return nil, err
	}
	// An interrupt does not leave open whether it exists.
	object, err := r.shifts().Create(context.WithoutCancel(ctx), &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, r.exists()
	}
	if err != nil {
		return nil, r.explained("creating ZoneShift "+r.name, err)
	}
	if created, err = convertTo[v1alpha1.ZoneShift](object); err != nil {
		return nil, err
	}
	begun := time.Now()
	return created, await(ctx, r.err, func() (done bool, err error) {
		zs, lasting, err := r.read(ctx)
		if err != nil {
			return lasting, err
		}
		accepted := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted)
		isOpen := accepted == nil || accepted.Status == metav1.ConditionUnknown
		switch {
		case isOpen && time.Since(begun) >= acceptanceTimeout:
			return true, fmt.Errorf("no controller has accepted ZoneShift %s within %s, so no endpoint has left: %w", r.name, plaintext.Span(acceptanceTimeout), errShiftUnread)
		case isOpen:
			return false, nil
		case accepted.Status != metav1.ConditionTrue:
			_, message := stateOf(zs)
			return true, errors.Join(fmt.Errorf("the shift is refused, so no endpoint leaves: %s", message), r.delete(ctx, created.UID))
		}
		_, message := stateOf(zs)
		r.print("%s; %s", message, effectOf(&zs.Status))
		done = meta.IsStatusConditionTrue(zs.Status.Conditions, v1alpha1.ConditionInForce)
		if done {
			r.print("The shift is in force until %s. %s", plaintext.Clock(shift.Until(zs)), r.commands())
		}
		return done, nil
	})
}

func (r *shiftRun) commands() string {
	return fmt.Sprintf("To see it: vicinity shift status %[1]s. To go back: vicinity shift back %[1]s", r.name)
}

func (r *shiftRun) exists() error {
	return fmt.Errorf("ZoneShift %[1]s exists already, so nothing was changed: \"vicinity shift status %[1]s\" shows it, \"vicinity shift extend %[1]s --for 1h\" moves its end, \"vicinity shift back %[1]s\" removes it", r.name)
}
