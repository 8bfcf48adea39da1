package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletpkg "k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

// newKubeletCommand is the kubelet with its own flags. A lab's nodes share the machine, so it manages
// no control groups, adjusts nothing of the machine, and measures only its disk. --capacity sets the
// node's capacity.
func newKubeletCommand() *cobra.Command {
	flags := options.NewKubeletFlags()
	capacity := map[string]string{}
	cmd := &cobra.Command{
		Use:          "kubelet",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return runKubelet(genericapiserver.SetupSignalContext(), flags, capacity)
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().StringToStringVar(&capacity, "capacity", nil, "`RESOURCES` that the node offers, such as cpu=4,memory=8Gi")
	return cmd
}

func runKubelet(ctx context.Context, flags *options.KubeletFlags, capacity map[string]string) error {
	resources := corev1.ResourceList{}
	for name, text := range capacity {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("capacity of %s, %q: %w", name, text, err)
		}
		resources[corev1.ResourceName(name)] = quantity
	}
	server, err := readKubeletConfig(ctx, flags)
	if err != nil {
		return err
	}
	deps, err := kubelet.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	// With systemd, mounts would be in the machine's mount namespace.
	deps.Mounter = mount.NewWithoutSystemd("")
	deps.HostUtil = hostutil.NewHostUtil()
	deps.Subpather = subpath.New(deps.Mounter)
	deps.OOMAdjuster = oom.NewFakeOOMAdjuster()
	deps.OSInterface = noLinks{}
	// Resources of device plugins replace measured ones.
	deps.ContainerManager = podsInRoot{cm.NewStubContainerManagerWithDevicePluginResource(resources)}
	if deps.CAdvisorInterface, err = describeMachine(flags.HostnameOverride, flags.RootDirectory); err != nil {
		return err
	}
	kubeletpkg.ContainerLogsDir = filepath.Join(flags.RootDirectory, "container-logs")
	return kubelet.Run(ctx, server, deps, utilfeature.DefaultFeatureGate)
}

// readKubeletConfig reads the file that the flag --config names.
func readKubeletConfig(ctx context.Context, flags *options.KubeletFlags) (*options.KubeletServer, error) {
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, flags.KubeletConfigFile)
	if err != nil {
		return nil, err
	}
	config, err := loader.Load(ctx)
	if err != nil {
		return nil, err
	}
	// Where an event of the runtime only triggers a relist, events let the kubelet notice an end at once.
	if _, ok := utilfeature.DefaultMutableFeatureGate.GetAll()["PLEGOnDemandRelist"]; ok && config.FeatureGates == nil {
		config.FeatureGates = map[string]bool{"EventedPLEG": true}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates); err != nil {
		return nil, err
	}
	if err := logsapi.ValidateAndApply(&config.Logging, utilfeature.DefaultFeatureGate); err != nil {
		return nil, err
	}
	return &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}, nil
}

// podsInRoot gives all pods a control group: without its name, a kubelet logs an error whenever it
// checks the storage of pods.
type podsInRoot struct{ cm.ContainerManager }

// GetPodCgroupRoot returns the name of the control group.
func (podsInRoot) GetPodCgroupRoot() string { return "/" }

// noLinks does not make symbolic links: the kubelet would link each log in a folder of the machine.
type noLinks struct{ container.RealOS }

// Symlink does nothing.
func (noLinks) Symlink(string, string) error { return nil }
