// Package cri is the container runtime of a lab's nodes: it answers kubelets by the CRI, and runs
// containers as processes of this machine.
//
// A pod sandbox is a network namespace in the lab's fabric. A container is a process with the
// machine's file system, except for its own /tmp and /var/tmp. It is in the network namespace of its
// pod and in its own mount and PID namespaces. Each container has a keeper process (RunContainer) that
// makes the mounts, writes the log and records the exit code, so that containers survive the runtime.
// Records are files in the state folder; a new runtime adopts running containers from them.
//
// The program is the first process of its PID namespace: the kernel kills the others when it ends. A
// pod may ask for the machine's PID namespace. Then the keeper finds remaining processes of a container
// by its mounts.
//
// One process serves all nodes, each at its own socket. Kubelets decide what runs. The package limits
// no resources, measures only what is written to /, and pulls no images: an image is a name that maps
// to a program (see [Images]).
package cri
