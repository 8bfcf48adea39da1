// Command kubernetes is the real etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kube-proxy, kubelet and kubectl in one program, built from their published Go modules. The first
// argument chooses the component, and the others are its flags; under the name kubectl the program is
// kubectl. One program links the shared code once, and is one file to build, keep and find.
//
// It has its own Go module, so that the versions and replacements that Kubernetes needs affect no
// other module.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// components returns the components by the first argument. Each reads os.Args like a separate
// program, and returns its exit code.
func components() map[string]func() int {
	return map[string]func() int{
		"etcd": func() int { etcdmain.Main(os.Args); return 0 },

		"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
		"kubelet":                 func() int { return cli.Run(newKubeletCommand()) },
		kubectlName:               runKubectl,
	}
}

const kubectlName = "kubectl"

// runKubectl prints errors as kubectl does, but not those of a command that ran in a pod.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // ends the process
	}
	return 0
}

func main() {
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && filepath.Base(args[0]) == kubectlName {
		return runKubectl()
	}
	var name string
	if len(args) > 1 {
		name = args[1]
	}
	if name == "version" {
		fmt.Fprintf(stdout, "kubernetes %s, etcd %s, %s %s/%s\n",
			version.Get().GitVersion, etcdversion.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return 0
	}
	component, ok := components()[name]
	if !ok {
		fmt.Fprintf(stderr, "component %q is unknown: the first argument is version or one of %s\n", name, strings.Join(slices.Sorted(maps.Keys(components())), ", "))
		return 2
	}
	// The command of a component parses os.Args itself.
	os.Args = args[1:]
	return component()
}
