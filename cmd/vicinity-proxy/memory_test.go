package main

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"vicinity.dev/vicinity/internal/proxy/view"
)

func TestMemoryLimit(t *testing.T) {
	const mebibyte = 1 << 20
	for name, test := range map[string]struct {
		files map[string]string
		heap  int64
		want  int64
	}{
		"none":                       {nil, 0, 0},
		"no limit":                   {map[string]string{"memory.max": "max\n"}, 0, 0},
		"of version 2":               {map[string]string{"memory.max": "536870912\n"}, 0, 512 * mebibyte},
		"of version 1":               {map[string]string{"memory/memory.limit_in_bytes": "536870912\n"}, 0, 512 * mebibyte},
		"no limit of version 1":      {map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, 0},
		"GOMEMLIMIT":                 {nil, 100 * mebibyte, 100 * mebibyte},
		"GOMEMLIMIT, which is less":  {map[string]string{"memory.max": "536870912"}, 100 * mebibyte, 100 * mebibyte},
		"GOMEMLIMIT, which is more":  {map[string]string{"memory.max": "1048576"}, 100 * mebibyte, mebibyte},
		"something that is no limit": {map[string]string{"memory.max": "-1"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			groups := fstest.MapFS{}
			for path, text := range test.files {
				groups[path] = &fstest.MapFile{Data: []byte(text)}
			}
			if test.heap > 0 {
				defer debug.SetMemoryLimit(debug.SetMemoryLimit(test.heap))
			}
			if got := memoryLimit(groups); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
		})
	}
}

// The heap leaves room for the kernel's memory, which counts for the control group.
func TestHeapLimit(t *testing.T) {
	const mebibyte = 1 << 20
	for name, test := range map[string]struct{ usual, group, kernel, want int64 }{
		"no limit":              {math.MaxInt64, 0, 100 * mebibyte, math.MaxInt64},
		"GOMEMLIMIT alone":      {461 * mebibyte, 0, 100 * mebibyte, 461 * mebibyte},
		"a control group alone": {math.MaxInt64, 512 * mebibyte, 100 * mebibyte, 412 * mebibyte},
		"both":                  {461 * mebibyte, 512 * mebibyte, 100 * mebibyte, 412 * mebibyte},
		"few elements":          {461 * mebibyte, 512 * mebibyte, mebibyte, 461 * mebibyte},
		"too many elements":     {461 * mebibyte, 512 * mebibyte, 600 * mebibyte, 256 * mebibyte},
	} {
		before := debug.SetMemoryLimit(test.usual)
		if got := heapLimit(test.group, test.kernel); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
		debug.SetMemoryLimit(before)
	}
}

// With any limit, the default bounds fit into the heap and the kernel's memory: each element needs its bytes during a
// change, and a quarter of the heap stays for the rest.
func TestDefaultsFitTheMemory(t *testing.T) {
	for limit := int64(128 << 20); limit <= 8<<30; limit *= 2 {
		environment := limit / 10 * 9 // as in the chart
		before := debug.SetMemoryLimit(environment)
		bounds := view.BoundsWithin(environment, view.Bounds{})
		heap := heapLimit(limit, bounds.KernelMemory())
		debug.SetMemoryLimit(before)
		const inHeap = 700 // with the usual garbage
		if needed := int64(bounds.Total)*inHeap + environment/4; heap < needed || heap+bounds.KernelMemory() > limit {
			t.Errorf("of %d bytes the heap uses %d, and needs %d", limit, heap, needed)
		}
	}
}
