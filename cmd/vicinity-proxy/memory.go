package main

import (
	"io/fs"
	"math"
	"runtime/debug"
	"strconv"
	"strings"
)

// controlGroups is the folder where a container sees its control group.
const controlGroups = "/sys/fs/cgroup"

// memoryFiles say there how much memory it may have, by the versions of control groups.
var memoryFiles = []string{"memory.max", "memory/memory.limit_in_bytes"}

// noLimit is more memory than there is: what says that there is no limit.
const noLimit = math.MaxInt64 / 2

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
