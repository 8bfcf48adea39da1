package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kept is a container whose keeper runs, without a pod.
type kept struct {
	t         *testing.T
	folder    string
	container container
	ended     chan error
}

// testHost is a runtime whose processes this program runs.
func testHost() *host {
	return &host{Options: Options{Self: []string{os.Args[0]}, Log: slog.Default()}}
}

// itsFolder stands for the container's folder as the target of a mount.
const itsFolder = "its folder"

func keepContainer(t *testing.T, spec containerSpec) *kept {
	t.Helper()
	k, b := tryContainer(t, spec)
	if b.Error != "" {
		t.Fatal(b.Error)
	}
	return k
}

// tryContainer starts a container, and returns what its keeper reports.
func tryContainer(t *testing.T, spec containerSpec) (*kept, startReport) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes mount namespaces, which needs root")
	}
	k := &kept{t: t, folder: t.TempDir(), ended: make(chan error, 1)}
	spec.Starter = []string{os.Args[0], becomeCommand}
	spec.Dir = cmp.Or(spec.Dir, "/")
	spec.Env, spec.Log = append(os.Environ(), spec.Env...), filepath.Join(k.folder, "log")
	for i := range spec.Mounts {
		if spec.Mounts[i].Target == itsFolder {
			spec.Mounts[i].Target = k.folder
		}
	}
	if err := writeJSON(filepath.Join(k.folder, specFile), spec); err != nil {
		t.Fatal(err)
	}
	a := testHost()
	b, cmd, err := a.startKeeper(k.folder)
	if err != nil {
		t.Fatal(err)
	}
	k.container.begin(b)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		k.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = b.Process.killGroup() // most have ended
		<-gone
	})
	return k, b
}

func (k *kept) write(text string) *os.File {
	k.t.Helper()
	input, err := k.container.openInput()
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := io.WriteString(input, text); err != nil {
		k.t.Fatal(err)
	}
	return input
}

// printed waits until the log's text is as wanted.
func (k *kept) printed(want string) {
	k.t.Helper()
	k.log(func(text string) bool { return text == want })
}

// printedProcess waits until a process of the container printed its number.
func (k *kept) printedProcess() processID {
	k.t.Helper()
	var pid int
	k.log(func(text string) bool {
		n, err := fmt.Sscanf(text, "%d\n", &pid)
		return n == 1 && err == nil
	})
	return k.find(pid)
}

// find finds the process that has a number in the container.
func (k *kept) find(pid int) processID {
	k.t.Helper()
	of := func(path string) string {
		link, err := os.Readlink(filepath.Join(path, "ns/pid"))
		if err != nil {
			return err.Error() // it ended
		}
		return link
	}
	namespace := of(fmt.Sprintf("/proc/%d", k.container.process.ID))
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		k.t.Fatal(err)
	}
	for _, path := range all {
		status, err := os.ReadFile(filepath.Join(path, "status"))
		_, numbers, found := strings.Cut(string(status), "\nNSpid:")
		if err != nil || !found || of(path) != namespace {
			continue
		}
		line, _, _ := strings.Cut(numbers, "\n")
		all := strings.Fields(line)
		if all[len(all)-1] != strconv.Itoa(pid) {
			continue
		}
		number, err := strconv.Atoi(all[0])
		if err != nil {
			k.t.Fatal(err)
		}
		p, err := findProcess(number)
		if err != nil {
			k.t.Fatal(err)
		}
		return p
	}
	k.t.Fatalf("the container has no process %d", pid)
	return processID{}
}

// log waits until the log's text will do.
func (k *kept) log(met func(string) bool) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var b strings.Builder
		s := logStream{path: filepath.Join(k.folder, "log"), to: &b}
		if err := s.copy(k.t.Context()); err == nil && met(b.String()) {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("it printed %q", b.String())
		}
	}
}

func (k *kept) ends(code int32) {
	k.t.Helper()
	select {
	case err := <-k.ended:
		if err != nil {
			k.t.Error(err)
		}
	case <-time.After(time.Minute):
		k.t.Fatal("it does not end")
	}
	var e exitReport
	if err := readJSON(filepath.Join(k.folder, endFile), &e); err != nil || e.ExitCode != code {
		k.t.Errorf("ended with %d, %v; want %d", e.ExitCode, err, code)
	}
}

// The input stays open when a writer closes it, until the keeper closes it.
func TestContainerReadsItsInput(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "cat; exit 5"}, Input: true})
	for _, text := range []string{"one\n", "two"} {
		if err := k.write(text).Close(); err != nil {
			t.Fatal(err)
		}
	}
	k.printed("one\ntwo")
	if !k.container.process.isAlive() {
		t.Fatal("it ended although its input did not")
	}
	if err := k.container.keeper.signal(closeInput); err != nil {
		t.Fatal(err)
	}
	k.ends(5)
	if _, err := k.container.openInput(); err == nil {
		t.Error("the input of a container that ended can be opened")
	}
}

// The kubelet renames a log that is full.
func TestContainerBeginsANewLog(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "echo one; read x; echo two; exit 4"}, Input: true})
	k.printed("one\n")
	log := filepath.Join(k.folder, "log")
	if err := os.Rename(log, log+".full"); err != nil {
		t.Fatal(err)
	}
	if err := k.container.keeper.signal(reopenLog); err != nil {
		t.Fatal(err)
	}
	k.printed("")
	if err := k.write("go\n").Close(); err != nil {
		t.Fatal(err)
	}
	k.ends(4)
	k.printed("two\n")
}

func TestContainerHasNoInput(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "cat; echo none"}})
	if k.container.input != 0 {
		t.Errorf("its input is %d", k.container.input)
	}
	k.ends(0)
	k.printed("none\n")
}

func TestContainerHasATerminal(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "stty -echo; tty -s && printf 'size? '; read x; stty size; exit 3"}, Input: true, Terminal: true})
	k.printed("size? ")
	input := k.write("")
	defer input.Close()
	if err := setSize(input, 40, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(input, "go\n"); err != nil {
		t.Fatal(err)
	}
	k.ends(3)
	k.printed("size? 40 100\r\n")
}

// A volume may be mounted wherever the lab keeps its state.
func TestContainerWithAVolumeOverItsFolder(t *testing.T) {
	k := keepContainer(t, containerSpec{
		Args:   []string{"sh", "-c", "ls -A $0; exit 6", itsFolder},
		Mounts: []mount{{Source: t.TempDir(), Target: itsFolder}},
	})
	k.ends(6)
}

// A container has the files of its image as its own, beside the machine's and what is mounted.
func TestContainerHasTheFilesOfItsImage(t *testing.T) {
	root, beside := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		root + "/srv/www/index.html": "page", root + "/etc/passwd": "image", root + "/tool": "#!/bin/sh\necho tool\n",
		beside + "/hosts": "hosts", beside + "/agnhost": "#!/bin/sh\necho agnhost\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("srv/www", root+"/pages"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root+"/proc", 0o755); err != nil {
		t.Fatal(err)
	}
	machine, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	k := keepContainer(t, containerSpec{
		Args: []string{"sh", "-e", "-c", `
			cat /pages/index.html /etc/passwd /etc/hosts; echo
			/agnhost; /tool; ls /etc/ssl >/dev/null; ls /proc/$$/exe >/dev/null
			mv /srv/www/index.html /srv/www/other; mv /etc/passwd /etc/mine; rm /tool
			cat /srv/www/other /etc/mine; echo; ls /srv/www`},
		Root:   root,
		Mounts: []mount{{Source: beside + "/hosts", Target: "/etc/hosts"}, {Source: beside + "/agnhost", Target: "/agnhost", ReadOnly: true}},
	})
	k.ends(0)
	k.printed("pageimagehosts\nagnhost\ntool\npageimage\nother\n")
	if after, err := os.ReadFile("/etc/passwd"); err != nil || string(after) != string(machine) {
		t.Errorf("the machine's file is %q, %v", after, err)
	}
	if text, err := os.ReadFile(root + "/srv/www/index.html"); err != nil || string(text) != "page" {
		t.Errorf("the image's file is %q, %v", text, err)
	}
}

func TestContainerDoesNotGetTheReport(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "test ! -e /proc/$$/fd/3"}})
	k.ends(0)
}

func TestContainerHasTheCapabilitiesItIsLeft(t *testing.T) {
	forbid, err := droppedCapabilities(&runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}})
	if err != nil {
		t.Fatal(err)
	}
	k := keepContainer(t, containerSpec{
		Args:        []string{"grep", "-E", "^Cap(Prm|Eff|Bnd)", "/proc/self/status"},
		programSpec: programSpec{Forbidden: forbid},
	})
	mask := fmt.Sprintf("%016x", 1<<unix.CAP_NET_ADMIN)
	k.printed("CapPrm:\t" + mask + "\nCapEff:\t" + mask + "\nCapBnd:\t" + mask + "\n")
}

// The program is the first process of a PID namespace, which exec joins.
func TestContainerHasItsOwnProcesses(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", `echo $$ $(cat /proc/1/comm) $(grep -c " /proc " /proc/self/mounts); exec cat`}, Input: true})
	k.printed("1 sh 1\n")
	var out strings.Builder
	err := command{process: k.container.process, folder: k.folder, args: []string{"sh", "-c", "cat /proc/1/comm; test -e /proc/$$ && test $$ != 1 && kill -9 1 && echo alive"}, out: &out}.run(t.Context())
	if err != nil || out.String() != "cat\nalive\n" {
		t.Errorf("exec prints %q, %v", &out, err)
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		t.Errorf("this process is %s for itself, %v", self, err)
	}
}

// The kernel ignores signals to the first process of a PID namespace that it has no handler for.
func TestContainerIgnoresASignalWithoutHandler(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "echo up; read x; exit 5"}, Input: true})
	k.printed("up\n")
	if err := k.container.process.signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := k.write("go\n").Close(); err != nil {
		t.Fatal(err)
	}
	k.ends(5)
}

func TestContainerHandlesASignal(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "trap 'exit 6' TERM; echo up; read x"}, Input: true})
	k.printed("up\n")
	if err := k.container.process.signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	k.ends(6)
}

func TestContainerHasTheProcessesOfTheMachine(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "echo $$; exec cat"}, Input: true, programSpec: programSpec{HostProcesses: true}})
	if printed := k.printedProcess(); printed != k.container.process {
		t.Errorf("its process is %v for itself, and %v for the machine", printed, k.container.process)
	}
	if err := k.container.process.signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	k.ends(128 + int32(unix.SIGTERM))
}

// A container may see the processes of another one, and does not end it.
func TestContainerHasTheProcessesOfAnother(t *testing.T) {
	target := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "echo up; read x; exit 5"}, Input: true})
	target.printed("up\n")
	joined := programSpec{ProcessesOf: &target.container.process}
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "cat /proc/1/comm; setsid sleep 1000 & exit 3"}, programSpec: joined})
	k.ends(3)
	k.printed("sh\n")
	if err := target.write("go\n").Close(); err != nil {
		t.Fatal(err)
	}
	target.ends(5)
	if _, b := tryContainer(t, containerSpec{Args: []string{"true"}, programSpec: joined}); b.Error == "" {
		t.Error("a container joined the processes of one that had ended")
	}
}

// The containers of a pod may share a PID namespace, which outlives each of them and ends with the
// sandbox.
func TestContainersShareTheirProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes PID namespaces, which needs root")
	}
	s := &sandbox{folder: t.TempDir()}
	if err := testHost().holdProcesses(s); err != nil {
		t.Fatal(err)
	}
	var recorded sandboxRecord
	if err := readJSON(filepath.Join(s.folder, sandboxFile), &recorded); err != nil || *recorded.FirstProcess != *s.FirstProcess {
		t.Errorf("recorded is %v, %v", recorded.FirstProcess, err)
	}
	shared := programSpec{ProcessesOf: s.FirstProcess}
	first := keepContainer(t, containerSpec{Args: []string{"cat"}, programSpec: shared, Input: true})
	if err := first.write("up\n").Close(); err != nil {
		t.Fatal(err)
	}
	first.printed("up\n")
	// The holder waits for the child whose parent has ended.
	second := keepContainer(t, containerSpec{Args: []string{"sh", "-c", `
		orphan=$(sleep 0.01 >/dev/null 2>&1 & echo $!)
		while test -e /proc/$orphan; do sleep 0.01; done
		for p in /proc/[0-9]*; do read name <$p/comm; test $name != cat || exec kill ${p#/proc/}; done`}, programSpec: shared})
	second.ends(0)
	first.ends(128 + int32(unix.SIGTERM))
	last := keepContainer(t, containerSpec{Args: []string{"sleep", "1000"}, programSpec: shared})
	if err := s.releaseProcesses(); err != nil {
		t.Fatal(err)
	}
	last.ends(137)
	waitGone(t, "the first process", *s.FirstProcess)
	if s.state() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Error("the sandbox is ready without its processes")
	}
	if err := s.releaseProcesses(); err != nil {
		t.Error(err)
	}
}

func TestContainerWithoutProgram(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   []string
		folder string
		want   string
	}{
		{nil, "/", "the container has no program"},
		{[]string{"nothing-of-this-name"}, "/", `exec: "nothing-of-this-name": executable file not found in $PATH`},
		{[]string{script}, "/", "exec " + script + ": exec format error"},
		{[]string{"true"}, "/nowhere", "chdir /nowhere: no such file or directory"},
	} {
		// The environment is that of the program alone: Go's runtime refuses the memory limit.
		k, b := tryContainer(t, containerSpec{Args: test.args, Env: []string{"GOMEMLIMIT=much"}, programSpec: programSpec{Dir: test.folder}})
		if b.Error != test.want {
			t.Errorf("%q in %s: %q, want %q", test.args, test.folder, b.Error, test.want)
		}
		k.ends(startFailed)
		k.log(func(log string) bool { return log == "" })
	}
}

// When a container ends, all its processes end, in whatever session.
func TestContainerEndsWhole(t *testing.T) {
	for name, processes := range map[string]programSpec{"own": {}, "machine": {HostProcesses: true}} {
		t.Run(name, func(t *testing.T) { testEndsWhole(t, processes) })
	}
}

func testEndsWhole(t *testing.T, processes programSpec) {
	k := keepContainer(t, containerSpec{
		Args:        []string{"sh", "-c", `setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & wait`},
		programSpec: processes,
	})
	daemon := k.printedProcess()
	beside := make(chan error, 1)
	r, w := io.Pipe()
	go func() {
		beside <- command{process: k.container.process, folder: k.folder, args: []string{"sh", "-c", "echo $$; exec sleep 1000"}, out: w}.run(t.Context())
	}()
	var pid int
	if _, err := fmt.Fscanln(r, &pid); err != nil {
		t.Fatal(err)
	}
	other := k.find(pid)
	if err := k.container.process.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k.ends(137)
	select {
	case err := <-beside:
		if exit, ok := errors.AsType[exitError](err); !ok || exit.code != 137 {
			t.Errorf("exec says %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("exec does not end with its container")
	}
	waitGone(t, "the container's own process", daemon)
	waitGone(t, "that of exec", other)
}

// waitGone waits for a process that was killed, which takes the kernel a moment.
func waitGone(t *testing.T, what string, p processID) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); p.isAlive(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("left is %s", what)
		}
	}
}

// An exec ends with its client, even if processes still use the terminal.
func TestExecEndsWithWhoAsks(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sleep", "1000"}})
	ctx, cancel := context.WithCancel(t.Context())
	input, _ := io.Pipe()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- command{
			process: k.container.process, folder: k.folder, terminal: true, in: input, out: w,
			args: []string{"sh", "-c", `trap '' HUP; setsid sleep 1000 & echo $$; wait`},
		}.run(ctx)
	}()
	var pid int
	if _, err := fmt.Fscan(r, &pid); err != nil {
		t.Fatal(err)
	}
	shell := k.find(pid)
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	waitGone(t, "its shell", shell)
}

// A keeper with an invalid report leaves nothing behind.
func TestKeeperThatDoesNotReport(t *testing.T) {
	folder := t.TempDir()
	script := `setsid sh -c 'echo $$ > "$0/next"; mv "$0/next" "$0/pid"; exec sleep 1000' "$1" &
while [ ! -e "$1/pid" ]; do sleep 0.01; done; echo nonsense >&3; wait`
	a := &host{Options: Options{Self: []string{"sh", "-c", script}, Log: slog.Default()}}
	_, cmd, err := a.startKeeper(folder)
	if err == nil {
		t.Fatal("its report is believed")
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	text, err := os.ReadFile(filepath.Join(folder, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := findProcess(pid); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("what it started is left")
		}
	}
}
