package httpserver

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Limit bounds how many connections servers hold. A new connection is always taken. An older one that only waits
// is closed for it, so that silent clients keep nobody from an answer. Young connections stay for a moment,
// since a busy server takes a while to read a request. Any goroutine may call its methods.
type Limit struct {
	most int
	// young is how long a connection is safe, up to mostYoung connections.
	young time.Duration

	mu sync.Mutex
	// held are the connections. The one whose state is oldest comes first.
	held []held
}

const (
	defaultYoung = 100 * time.Millisecond
	mostYoung    = 1024
)

type held struct {
	conn  net.Conn
	began time.Time
	// active says that a request arrives or is answered.
	active bool
}

// NewLimit makes a limit of so many connections.
func NewLimit(most int) *Limit { return &Limit{most: most, young: defaultYoung} }

// note is called by servers when a connection changes its state.
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

// makeRoom closes the connections that are too many. Young ones are closed for a later connection, or when their
// request does not come in time.
func (l *Limit) makeRoom(now time.Time) {
	for len(l.held) > l.most {
		gone := l.dispensable(now)
		if gone < 0 {
			return
		}
		_ = l.held[gone].conn.Close() // the client may have closed it already
		l.held = slices.Delete(l.held, gone, gone+1)
	}
}

// dispensable is the connection to close, negative if all are young. The newest stays. An active one is closed
// only if all others are.
func (l *Limit) dispensable(now time.Time) int {
	others := l.held[:len(l.held)-1]
	waits := func(h held) bool { return !h.active }
	old := func(h held) bool { return len(l.held) > max(l.most, mostYoung) || now.Sub(h.began) >= l.young }
	if !slices.ContainsFunc(others, waits) {
		return slices.IndexFunc(others, old)
	}
	return slices.IndexFunc(others, func(h held) bool { return waits(h) && old(h) })
}
