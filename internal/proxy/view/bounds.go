package view

import "fmt"

// Bounds are how many elements of the kernel's sets the rules may have, as package ruleset
// counts them. Zero is no bound.
type Bounds struct {
	// Service bounds what one Service takes, and Total what all of them do.
	Service, Total int
}

const (
	// bytesPerElement is what an element costs if as many of them change at once as one sync may
	// change, which is more than all. It has some 140 bytes in the kernel, and half as much again
	// while others linger. The program has some 150 bytes of it from then on, and while it changes
	// up to 500: the element as it was and as it will be, the message that says so, and the
	// connections that lead where it led. The rest is for garbage.
	bytesPerElement = 1024
	// kernelBytes are those of them that the kernel takes.
	kernelBytes = 140 / 2 * 3
	// unlimitedElements is for programs whose memory has no limit: 4 GiB.
	unlimitedElements = 4 << 20
)

// BoundsWithin fills in what is not given, for a program with so many bytes of memory, zero
// if that has no limit. A quarter of it is for what the API says. One Service may have half
// of all elements.
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

// KernelMemory is how many bytes the kernel may need for the elements of all Services. They count
// for the memory of the control group, and not for that of the program.
func (b Bounds) KernelMemory() int64 { return int64(b.Total) * kernelBytes }

// ForOne is what one Service may have that wants so many.
func (b Bounds) ForOne(wanted int) int {
	if b.Service > 0 {
		return min(wanted, b.Service)
	}
	return wanted
}

// Beyond says what is the matter with a Service that wants more than one may have.
func (b Bounds) Beyond(wanted int) string {
	return fmt.Sprintf("the whole Service needs %d elements, and --max-service-elements allows %d; remove ports, external IPs or endpoints, or raise the flag", wanted, b.Service)
}
