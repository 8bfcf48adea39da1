package shape

import "strings"

// Image is the name of a container image without registry, tag and digest: lab/NAME for the
// lab's own images, else the last part of the name.
func Image(name string) string {
	name, _, _ = strings.Cut(name, "@")
	slash := strings.LastIndexByte(name, '/')
	if colon := strings.LastIndexByte(name, ':'); colon > slash {
		name = name[:colon]
	}
	registry, program := name[:slash+1], name[slash+1:]
	if strings.HasSuffix("/"+registry, "/lab/") {
		return "lab/" + program
	}
	return program
}
