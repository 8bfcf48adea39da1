package health

import (
	"encoding/json"
	"net/http"
)

// Handler answers /healthz, /livez and /readyz. All answer 503 while a change waits too long. /healthz also answers 503 while
// the node is about to be removed, so that load balancers stop using it, and /readyz before the first sync. Below
// /healthz/services are answers about single Services.
func (s *State) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		made, eligible := s.report(), s.nodeEligible()
		made.NodeEligible = &eligible
		answer(w, made, made.Healthy && eligible)
	})
	mux.HandleFunc("/healthz/services/{namespace}/{name}", s.answerReach)
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		made := s.report()
		answer(w, made, made.Healthy)
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		made := s.report()
		answer(w, made, made.Healthy && s.Programmed())
	})
	return mux
}

// answer writes a report. Readers of kube-proxy's report expect recent updates, so a healthy proxy reports the current time.
func answer(w http.ResponseWriter, made report, healthy bool) {
	code := http.StatusServiceUnavailable
	if healthy {
		code, made.LastUpdated = http.StatusOK, made.CurrentTime
	}
	writeJSON(w, code, made)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, code, text)
}

func write(w http.ResponseWriter, code int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}
