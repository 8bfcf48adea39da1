// Package httpserver makes servers for ports of a node that anybody on its network may
// reach. It bounds what clients can take of the process: how many connections they hold, for
// how long, and how much of a request is read. It does not decide what is answered.
package httpserver

import (
	"net/http"
	"time"
)

// timeouts are for how long a client may hold a connection.
type timeouts struct {
	// read is how long a request may take to arrive, also the first one of a connection.
	read time.Duration
	// write is how long an answer may take, from the end of the request. A profile of pprof
	// gets the time that it is asked for besides.
	write time.Duration
	// idle is how long a connection is kept after an answer when no further request comes.
	idle time.Duration
}

var defaultTimeouts = timeouts{read: 10 * time.Second, write: 30 * time.Second, idle: time.Minute}

// maxHeaderBytes is how much of the head of a request is read, about.
const maxHeaderBytes = 16 << 10

// New makes a server whose connections count against a limit, which servers may share.
func New(handler http.Handler, limit *Limit) *http.Server {
	return newServer(handler, limit, defaultTimeouts)
}

func newServer(handler http.Handler, limit *Limit, bounds timeouts) *http.Server {
	return &http.Server{
		Handler: handler, ConnState: limit.note,
		ReadTimeout: bounds.read, WriteTimeout: bounds.write, IdleTimeout: bounds.idle, MaxHeaderBytes: maxHeaderBytes,
	}
}
