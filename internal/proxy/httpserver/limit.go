package httpserver

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Limit bounds the connections of servers. A new connection is always accepted, and an idle older one closed for it, so that
// silent clients do not block others. Young connections stay for a moment: a busy server needs time to read a request. Any
// goroutine may call its methods.
type Limit struct {
	most int
	// young is how long a new connection is not closed, up to mostYoung connections.
	young time.Duration

	mu sync.Mutex
	// held has the connections. The one with the oldest state comes first.
	held []held
}

const (
	defaultYoung = 100 * time.Millisecond
	mostYoung    = 1024
)

type held struct {
	conn  net.Conn
	began time.Time
	// active means that a request is being read or answered.
	active bool
}

// NewLimit returns a limit for a number of connections.
func NewLimit(most int) *Limit { return &Limit{most: most, young: defaultYoung} }

// note records a new state of a connection, for http.Server.ConnState.
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

// makeRoom closes surplus connections. Young ones are closed for a later connection, or by the server's timeout.
func (l *Limit) makeRoom(now time.Time) {
	for len(l.held) > l.most {
		dispensable := l.dispensable(now)
		if dispensable < 0 {
			return
		}
		_ = l.held[dispensable].conn.Close() // the client may have closed it already
		l.held = slices.Delete(l.held, dispensable, dispensable+1)
	}
}

// dispensable returns the index of the connection to close, negative if all are young. The newest stays. An active one is
// closed only if all others are active.
func (l *Limit) dispensable(now time.Time) int {
	others := l.held[:len(l.held)-1]
	waits := func(h held) bool { return !h.active }
	old := func(h held) bool { return len(l.held) > max(l.most, mostYoung) || now.Sub(h.began) >= l.young }
	if !slices.ContainsFunc(others, waits) {
		return slices.IndexFunc(others, old)
	}
	return slices.IndexFunc(others, func(h held) bool { return waits(h) && old(h) })
}
