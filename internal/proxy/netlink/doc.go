// Package netlink talks to netfilter: it opens sockets, writes messages, and reads answers and failures. It knows the format
// of messages, and the content of tracked connections only.
//
// github.com/mdlayher/netlink is not used: it encodes each nested attribute in its own buffer, three for each of hundreds of
// thousands of elements, and it returns only the first failure of a batch, where package kernel needs all.
package netlink
