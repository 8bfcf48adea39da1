// Package httpserver makes servers for ports of a node that anybody on its network may
// reach. It bounds what clients can take of the process: how many connections they hold, for
// how long, and how much of a request is read. It does not decide what is answered.
package httpserver

import (
	"net/http"
	"time"
)

const (
	// readTimeout is how long a request may take to arrive.
	readTimeout = 10 * time.Second
	// writeTimeout is how long an answer may take, from the end of the request. A profile
	// of pprof gets the time that it is asked for besides.
	writeTimeout = 30 * time.Second
	// idleTimeout is how long a connection is kept that no request comes by.
	idleTimeout = time.Minute
	// maxHeaderBytes is how much of the head of a request is read, about.
	maxHeaderBytes = 16 << 10
)

// New makes a server whose connections count against a limit, which servers may share.
func New(handler http.Handler, limit *Limit) *http.Server {
	return &http.Server{
		Handler: handler, ConnState: limit.note,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
}
