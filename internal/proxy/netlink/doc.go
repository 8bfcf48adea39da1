// Package netlink talks to netfilter: it opens sockets, writes messages, and reads answers and
// what the kernel says of those that it refuses. It knows how messages are built, and not what
// they are about, but for the connections that conntrack lists.
//
// github.com/mdlayher/netlink does much of this, and is not used. It encodes each nested
// attribute in a buffer of its own: three for each element of a set, of which a transaction has
// hundreds of thousands. And of the failures that the kernel reports for a batch it returns the
// first, where package kernel needs all of them.
package netlink
