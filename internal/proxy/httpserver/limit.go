package httpserver

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Limit bounds how many connections servers hold. A new connection is always taken: one that
// waits is closed for it, so that connections that are only held keep no client from its
// answer. One that is young stays for a moment, since a server that is asked a lot takes a
// while to read what it sends. Its methods may be called by several goroutines.
type Limit struct {
	most int
	// young is for how long a connection is not closed for another one, as long as there are
	// no more than mostYoung.
	young time.Duration

	mu sync.Mutex
	// held are the connections, the one whose state is oldest first.
	held []held
	// waits says that those that are too many are closed in a moment.
	waits bool
}

const (
	defaultYoung = 100 * time.Millisecond
	mostYoung    = 1024
)

// held is a connection.
type held struct {
	conn  net.Conn
	began time.Time
	// active says that a request comes or is answered.
	active bool
}

// NewLimit is a limit of so many connections.
func NewLimit(most int) *Limit { return &Limit{most: most, young: defaultYoung} }

// note takes what a server says of a connection.
func (l *Limit) note(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	began := now
	if i := slices.IndexFunc(l.held, func(h held) bool { return h.conn == conn }); i >= 0 {
		began = l.held[i].began
		l.held = slices.Delete(l.held, i, i+1)
	}
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	l.held = append(l.held, held{conn, began, state == http.StateActive})
	l.makeRoom(now)
}

// makeRoom closes connections that are too many, and comes back for those that are young.
func (l *Limit) makeRoom(now time.Time) {
	for len(l.held) > l.most {
		gone := l.dispensable(now)
		if gone < 0 {
			break
		}
		_ = l.held[gone].conn.Close() // the client may have closed it already
		l.held = slices.Delete(l.held, gone, gone+1)
	}
	if len(l.held) > l.most && !l.waits {
		l.waits = true
		time.AfterFunc(l.young, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.waits = false
			l.makeRoom(time.Now())
		})
	}
}

// dispensable is the connection to close, negative if none is old enough. The one whose state
// is newest stays. Only where all others are active one of these goes.
func (l *Limit) dispensable(now time.Time) int {
	others := l.held[:len(l.held)-1]
	waits := func(h held) bool { return !h.active }
	old := func(h held) bool { return len(l.held) > max(l.most, mostYoung) || now.Sub(h.began) >= l.young }
	if !slices.ContainsFunc(others, waits) {
		return slices.IndexFunc(others, old)
	}
	return slices.IndexFunc(others, func(h held) bool { return waits(h) && old(h) })
}
