// Package agent is the kubelet's stand-in: it makes the nodes of a lab real to the
// control plane and runs the pods that the scheduler binds to them, as processes.
//
// What is decided and what is done are apart. A [record] holds all that is known of a
// pod; next (what to do now) and podStatus (what the API shall say) are functions of
// the pod, its record and the time, and touch nothing. A worker, one for each pod,
// carries the steps out, and writes back what came of them: processes that started,
// ended, or answered a probe.
//
// Containers are processes of this machine with its file system, in the network
// namespace of their pod and a mount namespace of their own. Each has a small keeper
// process (RunContainer) that makes the mounts, stamps the log and notes the exit code,
// so that a container neither needs nor misses the agent: records and notes are files
// in the state folder, from which an agent that starts anew adopts what runs.
//
// The package does not schedule, does not limit CPU or memory, and pulls no images: an
// image is a name that maps to a program (see [Images]).
package agent
