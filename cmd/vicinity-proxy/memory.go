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

// controlGroups is the folder of a container's control group.
const controlGroups = "/sys/fs/cgroup"

// memoryFiles has the files of the memory limit, for both versions of control groups.
var memoryFiles = []string{"memory.max", "memory/memory.limit_in_bytes"}

// noLimit is more memory than exists.
const noLimit = math.MaxInt64 / 2

// The garbage in per cent of the heap. At the start most garbage comes from lists, which delay the first sync.
// Afterwards a proxy makes little garbage, so a low percentage is enough.
const (
	garbageAtStart = 100
	garbage        = 40
)

// longestStart bounds the start, which may not end while the API server is unavailable or the kernel refuses all changes.
const longestStart = 10 * time.Minute

// raiseMemoryUse spends memory for a faster start. It returns the function that ends this mode, which also ends after
// longestStart. GOGC disables it. It leaves a quarter of the limit to the kernel's memory for the proxy. After the
// start, heap is the limit.
func raiseMemoryUse(limit, heap int64) (end func()) {
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

// heapLimit leaves room in a control group for the kernel's memory for the proxy. A group of zero has no limit. The
// heap gets at least half: endless garbage collection would be no better than being killed.
func heapLimit(group, kernel int64) int64 {
	usual := debug.SetMemoryLimit(-1)
	if group == 0 {
		return usual
	}
	return min(usual, max(group-kernel, group/2))
}

// memoryLimit returns the lower limit of the control group and GOMEMLIMIT, zero for none.
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

// groupLimit returns the limit of the control group, zero for none.
func groupLimit(groups fs.FS) int64 {
	least := int64(noLimit)
	for _, name := range memoryFiles {
		text, err := fs.ReadFile(groups, name)
		if err != nil {
			continue
		}
		// Without a limit the file has a word or a huge number.
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
			least = min(least, limit)
		}
	}
	if least >= noLimit {
		return 0
	}
	return least
}
