package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// RunPath is where Handler takes orders.
const RunPath = "/run"

// message is a line of the stream with which a client program answers: results of an
// interval each, then one line that is the last.
type message struct {
	Result *Result `json:"result,omitempty"`
	Done   bool    `json:"done,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// Handler is the API of a client program: POST RunPath with a job, answered with a
// stream of lines of JSON, {"result": …} for each interval and {"done": true} at the
// end. A job is {"plan": …, "place": …, "index": 0, "of": 1}; without a place, the
// handler's is taken. When the caller goes away the run ends.
//
// The handler does what it is told: it must listen where only the lab reaches it.
func Handler(place Place, dial DialFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+RunPath, func(w http.ResponseWriter, r *http.Request) {
		var j job
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&j); err != nil {
			http.Error(w, "reading the job: "+err.Error(), http.StatusBadRequest)
			return
		}
		j.Plan = j.Plan.withDefaults()
		if j.Place == (Place{}) {
			j.Place = place
		}
		if err := j.validate(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		stream := json.NewEncoder(w)
		flush := http.NewResponseController(w).Flush
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		say := func(m message) {
			if stream.Encode(m) != nil || flush() != nil {
				cancel() // nobody listens
			}
		}
		recorder := newRecorder(nil)
		_, err := run(ctx, []part{{&client{dial: dial, recorder: recorder}, j}}, recorder, func(p Progress) {
			say(message{Result: &p.Last})
		})
		last := message{Done: true}
		if err != nil {
			last.Error = err.Error()
		}
		say(last)
	})
	return mux
}

// remote is the generator that has a client program send.
type remote struct {
	control  func(ctx context.Context) (net.Conn, error)
	recorder *recorder
}

func (c *remote) run(ctx context.Context, j job) error {
	err := c.order(ctx, j)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *remote) order(ctx context.Context, j job) error {
	body, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("writing the job: %w", err)
	}
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.control(ctx) },
		DisableKeepAlives: true,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://client"+RunPath, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("asking the client program: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(response.Body, 1000))
		if err != nil {
			return fmt.Errorf("reading why the client program declined: %w", err)
		}
		return fmt.Errorf("the client program declined: %s", strings.TrimSpace(string(text)))
	}
	stream := json.NewDecoder(response.Body)
	for {
		var m message
		if err := stream.Decode(&m); err != nil {
			return fmt.Errorf("the results of the client program end early: %w", err)
		}
		if m.Result != nil {
			c.recorder.add(*m.Result)
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
		if m.Done {
			return nil
		}
	}
}
