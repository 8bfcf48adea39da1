package cri

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// capabilityNames are the kernel's capabilities by number, without the prefix CAP_.
var capabilityNames = []string{
	unix.CAP_CHOWN: "CHOWN", unix.CAP_DAC_OVERRIDE: "DAC_OVERRIDE", unix.CAP_DAC_READ_SEARCH: "DAC_READ_SEARCH",
	unix.CAP_FOWNER: "FOWNER", unix.CAP_FSETID: "FSETID", unix.CAP_KILL: "KILL", unix.CAP_SETGID: "SETGID",
	unix.CAP_SETUID: "SETUID", unix.CAP_SETPCAP: "SETPCAP", unix.CAP_LINUX_IMMUTABLE: "LINUX_IMMUTABLE",
	unix.CAP_NET_BIND_SERVICE: "NET_BIND_SERVICE", unix.CAP_NET_BROADCAST: "NET_BROADCAST", unix.CAP_NET_ADMIN: "NET_ADMIN",
	unix.CAP_NET_RAW: "NET_RAW", unix.CAP_IPC_LOCK: "IPC_LOCK", unix.CAP_IPC_OWNER: "IPC_OWNER",
	unix.CAP_SYS_MODULE: "SYS_MODULE", unix.CAP_SYS_RAWIO: "SYS_RAWIO", unix.CAP_SYS_CHROOT: "SYS_CHROOT",
	unix.CAP_SYS_PTRACE: "SYS_PTRACE", unix.CAP_SYS_PACCT: "SYS_PACCT", unix.CAP_SYS_ADMIN: "SYS_ADMIN",
	unix.CAP_SYS_BOOT: "SYS_BOOT", unix.CAP_SYS_NICE: "SYS_NICE", unix.CAP_SYS_RESOURCE: "SYS_RESOURCE",
	unix.CAP_SYS_TIME: "SYS_TIME", unix.CAP_SYS_TTY_CONFIG: "SYS_TTY_CONFIG", unix.CAP_MKNOD: "MKNOD",
	unix.CAP_LEASE: "LEASE", unix.CAP_AUDIT_WRITE: "AUDIT_WRITE", unix.CAP_AUDIT_CONTROL: "AUDIT_CONTROL",
	unix.CAP_SETFCAP: "SETFCAP", unix.CAP_MAC_OVERRIDE: "MAC_OVERRIDE", unix.CAP_MAC_ADMIN: "MAC_ADMIN",
	unix.CAP_SYSLOG: "SYSLOG", unix.CAP_WAKE_ALARM: "WAKE_ALARM", unix.CAP_BLOCK_SUSPEND: "BLOCK_SUSPEND",
	unix.CAP_AUDIT_READ: "AUDIT_READ", unix.CAP_PERFMON: "PERFMON", unix.CAP_BPF: "BPF",
	unix.CAP_CHECKPOINT_RESTORE: "CHECKPOINT_RESTORE",
}

const allCapabilities = "ALL"

// droppedCapabilities returns the numbers of the capabilities to drop in a container. Without a
// request the container keeps all of the runtime's.
func droppedCapabilities(requested *runtimeapi.Capability) ([]int, error) {
	add, drop := requested.GetAddCapabilities(), requested.GetDropCapabilities()
	for _, name := range slices.Concat(add, drop) {
		if name != allCapabilities && !slices.Contains(capabilityNames, kernelName(name)) {
			return nil, fmt.Errorf("capability %q: the kernel has no such capability; write %s or one without CAP_, such as NET_ADMIN", name, allCapabilities)
		}
	}
	has := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(c string) bool { return c == allCapabilities || kernelName(c) == name })
	}
	var numbers []int
	for number, name := range capabilityNames {
		if has(drop, name) && !has(add, name) {
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}

func kernelName(name string) string { return strings.TrimPrefix(name, "CAP_") }

// dropCapabilities removes capabilities from the programs that this thread starts.
func dropCapabilities(numbers []int) error {
	for _, number := range numbers {
		// An older kernel may not know a capability.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("dropping capability %s: %w", capabilityNames[number], err)
		}
	}
	return nil
}
