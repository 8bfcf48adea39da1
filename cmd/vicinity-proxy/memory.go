package main

import (
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// controlGroups is the folder where a container sees its control group.
const controlGroups = "/sys/fs/cgroup"

// memoryFiles say there how much memory it may have, by the versions of control groups.
var memoryFiles = []string{"memory.max", "memory/memory.limit_in_bytes"}

// noLimit is more memory than there is: what says that there is no limit.
const noLimit = math.MaxInt64 / 2

// How much garbage there may be, in per cent of what is used. At the start nearly all of it
// is that of lists, which are read once and delay the first sync. A proxy on each node makes
// little of it afterwards, and keeps what it knows: less than usual is enough then.
const (
	garbageAtStart = 100
	garbage        = 40
)

// longestStart is how long a start may spend memory: an API server that is away or a kernel
// that takes nothing may keep it from its end for ever.
const longestStart = 10 * time.Minute

// startGenerously spends memory for a start that takes less time, and returns what ends that
// and gives back what is not used. It ends by itself after longestStart. It leaves alone what
// the GOGC variable says. A quarter of a limit is left for what the kernel holds for the proxy,
// which counts too. From then on the heap may be so large, which is less than the limit.
func startGenerously(limit, heap int64) (end func()) {
	debug.SetMemoryLimit(heap)
	if os.Getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	debug.SetGCPercent(garbageAtStart)
	if limit > 0 {
		debug.SetMemoryLimit(min(limit/4*3, heap))
	}
	once := sync.OnceFunc(func() {
		debug.SetGCPercent(garbage)
		debug.SetMemoryLimit(heap)
		debug.FreeOSMemory()
	})
	timer := time.AfterFunc(longestStart, once)
	return func() {
		timer.Stop()
		once()
	}
}

// heapLimit is how many bytes the heap may have with garbage, so that what the kernel holds has
// room beside it in a control group of so many bytes, zero if that has no limit. Half of them are
// the heap's however much that is: to collect garbage all the time would be no better than to be
// killed.
func heapLimit(group, kernel int64) int64 {
	usual := debug.SetMemoryLimit(-1)
	if group == 0 {
		return usual
	}
	return min(usual, max(group-kernel, group/2))
}

// memoryLimit is how many bytes the program may have: as its control group says, or the
// GOMEMLIMIT variable if that is less. It is zero if neither says anything.
func memoryLimit(groups fs.FS) int64 {
	least := debug.SetMemoryLimit(-1)
	if group := groupLimit(groups); group > 0 {
		least = min(least, group)
	}
	if least >= noLimit {
		return 0
	}
	return least
}

// groupLimit is how many bytes the control group may have, zero if that has no limit.
func groupLimit(groups fs.FS) int64 {
	least := int64(noLimit)
	for _, name := range memoryFiles {
		text, err := fs.ReadFile(groups, name)
		if err != nil {
			continue
		}
		// Without a limit the text is a word or a number beyond all memory.
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
			least = min(least, limit)
		}
	}
	if least >= noLimit {
		return 0
	}
	return least
}
