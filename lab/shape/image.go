package shape

import "strings"

// Repository returns the name of a container image without tag and digest.
func Repository(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

// Image returns the name of a container image without registry, tag and digest: lab/NAME for the
// lab's own images, else the last part of the name.
func Image(name string) string {
	name = Repository(name)
	slash := strings.LastIndexByte(name, '/')
	registry, program := name[:slash+1], name[slash+1:]
	if strings.HasSuffix("/"+registry, "/lab/") {
		return "lab/" + program
	}
	return program
}
