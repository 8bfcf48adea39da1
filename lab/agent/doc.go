// Package agent stands in for the kubelets of a lab: it registers the nodes and runs the
// pods that are bound to them, as processes of this machine.
//
// Deciding is apart from doing. A [record] holds all that is known of a pod; next (what to
// do now) and podStatus (what to report) are pure functions of the pod, its record and the
// time. One worker per pod carries out the steps and records what happened: processes that
// started, ended or answered a probe.
//
// A container is a process with the machine's file system, in the network namespace of its
// pod and a mount namespace of its own. Each has a keeper process (RunContainer) that makes
// the mounts, writes the log and records the exit code, so that containers survive the
// agent. Records are files in the state folder; a new agent adopts running containers from
// them.
//
// The package does not schedule pods, does not limit CPU or memory, and pulls no images: an
// image is a name that maps to a program (see [Images]).
package agent
