package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/state"
)

// The processes that tests start are this program again.
const (
	agentArgument   = "run-agent"
	keeperArgument  = "run-keeper"
	gatewayArgument = "run-gateway"
)

func TestMain(m *testing.M) {
	if len(os.Args) < 3 {
		os.Exit(m.Run())
	}
	var err error
	switch os.Args[1] {
	case agentArgument:
		err = runAgent(os.Args[2])
	case keeperArgument:
		err = RunContainer(os.Args[2])
	case gatewayArgument:
		err = runGateway(os.Args[2])
	case "lab":
		err = runProgram(os.Args[3])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runAgent(folder string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	return Run(ctx, Options{
		State: state.At(folder), Keeper: []string{os.Args[0], keeperArgument},
		FirstBackoff: time.Second, MostBackoff: 4 * time.Second,
	})
}

func runGateway(folder string) error {
	dir := state.At(folder)
	lab, err := dir.Load()
	if err != nil {
		return err
	}
	c, err := controlplane.New(controlplane.Config{Dir: dir, Shape: lab.Shape, Port: lab.Port})
	if err != nil {
		return err
	}
	return c.ServeGateway(context.Background(), os.Stderr)
}

// runProgram is a small lab/echo and lab/sleep.
func runProgram(name string) error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if name == "echo" {
		listener, err := net.Listen("tcp", ":8080")
		if err != nil {
			return err
		}
		fmt.Println("listening")
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Join(os.Environ(), "\n"))
		})}
		go func() { fmt.Println(server.Serve(listener)) }()
	}
	<-stop.Done()
	return nil
}
