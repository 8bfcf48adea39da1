package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Endpoint is who answered: a pod, where it runs, and the Service that it belongs to.
type Endpoint struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace,omitempty"`
	Node      string `json:"node,omitempty"`
	Zone      string `json:"zone,omitempty"`
	// Service is a name, or several with commas between.
	Service string `json:"service,omitempty"`
}

// serves says whether the endpoint belongs to the Service, which is a name or a
// namespace and a name.
func (e Endpoint) serves(service string) bool {
	if namespace, name, found := strings.Cut(service, "/"); found {
		if namespace != e.Namespace {
			return false
		}
		service = name
	}
	for own := range strings.SplitSeq(e.Service, ",") {
		if strings.TrimSpace(own) == service {
			return true
		}
	}
	return false
}

// Answer is what an echo says, as one line of JSON, in all protocols:
//
//   - http: the body of GET /?id=ID,
//   - tcp: the answer to the line ID, or "ID close" to have the connection closed
//     after it,
//   - udp: the answer to a datagram that holds ID.
type Answer struct {
	Endpoint
	Protocol Protocol `json:"protocol,omitempty"`
	// Client is the address that the echo saw.
	Client string `json:"client,omitempty"`
	// ID is that of the request.
	ID string `json:"id,omitempty"`
	// Last says that the echo closes the connection after this answer.
	Last bool `json:"last,omitempty"`
}

// CloseWord after the ID asks an echo to close a TCP connection once it answered.
const CloseWord = "close"

// maxAnswer is the length up to which an answer is read. It fits into the buffer of a
// connection and into a datagram.
const maxAnswer = 4096

// Line is the answer as it is sent.
func (a Answer) Line() []byte {
	var line bytes.Buffer
	// Strings cannot fail to encode, and a buffer cannot fail to be written.
	_ = json.NewEncoder(&line).Encode(a)
	return line.Bytes()
}

// ParseAnswer reads what an echo sent.
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
