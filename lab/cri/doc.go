// Package cri is the container runtime of a lab's nodes: it answers the kubelets by the CRI,
// and runs containers as processes of this machine.
//
// A pod sandbox is a network namespace in the lab's fabric. A container is a process with
// the machine's file system but a /tmp and a /var/tmp of its own, in the network namespace of its pod and in
// a mount and a PID namespace of its own. Each has a keeper process (RunContainer) that makes
// the mounts, writes the log and records the exit code, so that containers survive the runtime.
// Records are files in the state folder; a new runtime adopts running containers from them.
//
// The program is the first process of its PID namespace: the kernel kills the others when it
// ends. A pod may ask for the machine's PID namespace, or for one that its containers share,
// whose first process (HoldProcesses) ends with the sandbox. An ephemeral container may join
// that of its target. In these the keeper finds what is left of a container by its mounts.
//
// One process serves all nodes, each at a socket of its own. What should run is for the
// kubelets to decide. The package limits and measures no resources, and pulls no images: an
// image is a name that maps to a program (see [Images]).
package cri
