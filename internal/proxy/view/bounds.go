package view

import "fmt"

// Bounds bounds the elements of the rules in the kernel's sets, as package ruleset counts them. Zero is no bound.
type Bounds struct {
	// Service bounds the elements of one Service, and Total those of all.
	Service, Total int
}

const (
	// bytesPerElement is the memory of an element during the largest sync. The kernel needs about 140 bytes, and half as
	// much again for unused elements. The program needs about 150 bytes, and up to 500 during a change: the old and the new
	// element, the message, and the stale connections. The rest is for garbage.
	bytesPerElement = 1024
	// kernelBytes is the kernel's part of bytesPerElement.
	kernelBytes = 140 / 2 * 3
	// unlimitedElements is for programs without a memory limit: 4 GiB.
	unlimitedElements = 4 << 20
)

// BoundsWithin sets the bounds that are zero, for a program with a memory limit in bytes, zero for none. A quarter of the
// memory is for objects of the API. One Service may use half of all elements.
func BoundsWithin(memory int64, given Bounds) Bounds {
	if given.Total == 0 {
		given.Total = unlimitedElements
		if memory > 0 {
			given.Total = int(max(1, memory/4*3/bytesPerElement))
		}
		given.Total = max(given.Total, given.Service)
	}
	if given.Service == 0 {
		given.Service = max(1, given.Total/2)
	}
	return given
}

// KernelMemory returns how many bytes the kernel may need for the elements of all Services. They count as memory of the
// control group, not of the program.
func (b Bounds) KernelMemory() int64 { return int64(b.Total) * kernelBytes }

// ForOne returns how many of its wanted elements one Service may use.
func (b Bounds) ForOne(wanted int) int {
	if b.Service > 0 {
		return min(wanted, b.Service)
	}
	return wanted
}

// Beyond explains why a Service that needs more than Bounds.Service is not programmed whole, and what to do.
func (b Bounds) Beyond(wanted int) string {
	return fmt.Sprintf("the whole Service needs %d elements, and --max-service-elements allows %d; remove ports, external IPs or endpoints, or raise the flag", wanted, b.Service)
}
