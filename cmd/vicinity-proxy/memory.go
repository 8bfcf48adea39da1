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

// controlGroups is where a container sees its control group.
const controlGroups = "/sys/fs/cgroup"

// memoryFiles have its memory limit, by versions of control groups.
var memoryFiles = []string{"memory.max", "memory/memory.limit_in_bytes"}

// noLimit is more memory than exists.
const noLimit = math.MaxInt64 / 2

// Garbage in per cent of the heap. At the start nearly all of it comes from lists, which are read once and delay
// the first sync. Afterwards a proxy makes little of it and keeps what it knows, so less than usual is enough.
const (
	garbageAtStart = 100
	garbage        = 40
)

// longestStart bounds the start, which may not end while the API server is away or the kernel takes nothing.
const longestStart = 10 * time.Minute

// startGenerously spends memory for a faster start. It returns the function that ends that, which also runs
// after longestStart. GOGC wins over it. It leaves a quarter of the limit to what the kernel holds for the
// proxy. After the start the heap has its own limit.
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

// heapLimit leaves room in a control group for what the kernel holds for the proxy. A group of zero has no
// limit. The heap has at least half: to collect garbage all the time would be no better than to be killed.
func heapLimit(group, kernel int64) int64 {
	usual := debug.SetMemoryLimit(-1)
	if group == 0 {
		return usual
	}
	return min(usual, max(group-kernel, group/2))
}

// memoryLimit is the limit of the control group or of GOMEMLIMIT, whichever is less, zero if there is none.
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

// groupLimit is zero if the control group has no limit.
func groupLimit(groups fs.FS) int64 {
	least := int64(noLimit)
	for _, name := range memoryFiles {
		text, err := fs.ReadFile(groups, name)
		if err != nil {
			continue
		}
		// Without a limit the text is a word or a huge number.
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
			least = min(least, limit)
		}
	}
	if least >= noLimit {
		return 0
	}
	return least
}
