// Package netlink talks to netfilter: it opens sockets, writes messages, and reads answers and failures. It
// knows the format of messages, and of their content only tracked connections.
//
// github.com/mdlayher/netlink is not used. It encodes each nested attribute in a buffer of its own, three for
// each of hundreds of thousands of elements. And it returns the first failure of a batch, where package kernel
// needs all.
package netlink
