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
// which counts too.
func startGenerously(limit int64) (end func()) {
	if os.Getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	debug.SetGCPercent(garbageAtStart)
	usual := debug.SetMemoryLimit(-1)
	if limit > 0 {
		debug.SetMemoryLimit(limit / 4 * 3)
	}
	once := sync.OnceFunc(func() {
		debug.SetGCPercent(garbage)
		debug.SetMemoryLimit(usual)
		debug.FreeOSMemory()
	})
	timer := time.AfterFunc(longestStart, once)
	return func() {
		timer.Stop()
		once()
	}
}

// memoryLimit is how many bytes the program may have: as its control group says, or the
// GOMEMLIMIT variable if that is less. It is zero if neither says anything.
func memoryLimit(groups fs.FS) int64 {
	least := debug.SetMemoryLimit(-1)
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
