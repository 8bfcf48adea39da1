package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Endpoint is the pod that answered.
type Endpoint struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace,omitempty"`
	Node      string `json:"node,omitempty"`
	Zone      string `json:"zone,omitempty"`
	// Service is a name, or several separated by commas. It is empty if the endpoint does not know it, and so for any.
	Service string `json:"service,omitempty"`
}

// serves reports whether the endpoint belongs to a Service, given as name or
// namespace/name.
func (e Endpoint) serves(service string) bool {
	if namespace, name, found := strings.Cut(service, "/"); found {
		if namespace != e.Namespace {
			return false
		}
		service = name
	}
	return e.Service == "" || slices.ContainsFunc(strings.Split(e.Service, ","), func(own string) bool { return strings.TrimSpace(own) == service })
}

// Answer is the answer of an echo. It is a line of JSON in all protocols:
//
//   - http: the body of GET /?id=ID,
//   - tcp: the answer to the line ID, or "ID close" to have the connection closed
//     after it,
//   - udp: the answer to a datagram that holds ID.
type Answer struct {
	Endpoint
	Protocol Protocol `json:"protocol,omitempty"`
	// Client is the client's address as the echo saw it.
	Client string `json:"client,omitempty"`
	ID     string `json:"id,omitempty"`
	// Last means that the echo closes the connection after this answer.
	Last bool `json:"last,omitempty"`
}

// CloseWord after the ID asks an echo to close a TCP connection after its answer.
const CloseWord = "close"

// maxAnswer is the longest valid answer. It fits into the buffer of a connection and into a
// datagram.
const maxAnswer = 4096

// Line encodes the answer.
func (a Answer) Line() []byte {
	var line bytes.Buffer
	// Neither encoding strings nor writing to a buffer can fail.
	_ = json.NewEncoder(&line).Encode(a)
	return line.Bytes()
}

// ParseAnswer parses the answer of an echo. It fails if the answer names no pod.
func ParseAnswer(line []byte) (Answer, error) {
	var a Answer
	if len(line) > maxAnswer {
		return a, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return Answer{}, fmt.Errorf("the answer is not that of an echo: %w", err)
	}
	if a.Pod == "" {
		return Answer{}, errors.New("the answer does not say which pod it is from")
	}
	return a, nil
}
