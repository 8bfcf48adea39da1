package shape

import "strings"

// Image is what the name of a container image comes to in a lab: lab/NAME for the
// images that the lab has itself, or else the last part of the name alone, as of
// vicinity-NAME. Registry, tag and digest mean nothing: there is one of each.
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
