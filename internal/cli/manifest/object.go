package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Error says where in a file the fault is.
type Error struct {
	File string
	// Document counts the documents that are not empty, from 1.
	Document int
	// Object is the kind and name, as far as they are known.
	Object string
	Err    error
}

func (e *Error) Error() string {
	where := fmt.Sprintf("%s: document %d", e.File, e.Document)
	if e.Object != "" {
		where += ": " + e.Object
	}
	return where + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Object is an object of a file, with its place.
type Object struct {
	Kind schema.GroupVersionKind
	// JSON is the whole object. Items of a list may lack their kind.
	JSON json.RawMessage

	name  string
	place Error
}

// String returns the kind, namespace and name.
func (o Object) String() string { return o.place.Object }

// Wrong adds the place of the object to an error.
func (o Object) Wrong(err error) error {
	wrong := o.place
	wrong.Err = err
	return &wrong
}

// Walk visits the objects of a file, documents or lists, in order. It stops at the first error, also
// of visit, and returns it as an Error unless reading itself fails.
func Walk(file string, from io.Reader, visit func(Object) error) error {
	parts := utilyaml.NewYAMLReader(bufio.NewReader(from))
	number := 0
	for {
		part, err := parts.Read()
		var separator utilyaml.YAMLSyntaxError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &separator):
			return &Error{File: file, Document: number + 1, Err: err}
		case err != nil:
			return fmt.Errorf("reading %s: %w", file, err)
		}
		values, err := valuesOf(part)
		for _, value := range values {
			number++
			w := walker{visit: visit, place: Error{File: file, Document: number}}
			if err := w.object(value, metav1.TypeMeta{}); err != nil {
				return err
			}
		}
		if err != nil {
			return &Error{File: file, Document: number + 1, Err: err}
		}
	}
}

// valuesOf reads the text between lines of "---": JSON values, or one YAML value. With an error it
// also returns the values before it.
func valuesOf(part []byte) (values []json.RawMessage, err error) {
	if text := bytes.TrimPrefix(part, []byte("---\n")); utilyaml.IsJSONBuffer(text) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		for {
			var value json.RawMessage
			err := decoder.Decode(&value)
			if errors.Is(err, io.EOF) {
				return values, nil
			}
			if err != nil && len(values) > 0 {
				return values, err
			}
			if err != nil {
				break // a map in braces can be YAML
			}
			values = append(values, value)
		}
	}
	value, err := yaml.YAMLToJSONStrict(part)
	if err != nil {
		message := strings.Join(strings.Fields(err.Error()), " ")
		return nil, errors.New(strings.TrimPrefix(message, "error converting YAML to JSON: "))
	}
	if string(value) == "null" {
		return nil, nil // only comments, or nothing
	}
	return []json.RawMessage{value}, nil
}

type identity struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

func (i identity) String() string {
	name := i.Metadata.Name
	if i.Metadata.Namespace != "" {
		name = i.Metadata.Namespace + "/" + name
	}
	return strings.TrimSpace(i.Kind + " " + name)
}

type walker struct {
	visit func(Object) error
	place Error    // without an object
	lists []string // around the object, with the index of its item
}

// object visits one object. implied is the type of items that do not name theirs.
func (w *walker) object(raw json.RawMessage, implied metav1.TypeMeta) error {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return w.at("").Wrong(errors.New("not a Kubernetes object: it must be a map with apiVersion, kind and metadata"))
	}
	var id identity
	// A value that does not fit here fails in visit with a better message, unless its kind is ignored.
	idErr := json.Unmarshal(raw, &id)
	if id.Kind == "" && id.APIVersion == "" {
		id.TypeMeta = implied
	}
	o := w.at(id.String())
	switch {
	case id.Kind == "" && idErr != nil:
		return w.at("").Wrong(errors.New("not a Kubernetes object: apiVersion, kind and metadata.name must be strings"))
	case id.Kind == "":
		return o.Wrong(errors.New("kind is missing; each document must be a Kubernetes object"))
	case id.APIVersion == "":
		return o.Wrong(errors.New("apiVersion is missing; each document must be a Kubernetes object"))
	}
	items, found, err := itemsOf(id, raw)
	switch {
	case err != nil:
		return o.Wrong(err)
	case found:
		return w.items(id, items)
	}
	o.Kind, o.JSON, o.name = id.GroupVersionKind(), raw, id.Metadata.Name
	if err := w.visit(o); err != nil {
		var placed *Error
		if errors.As(err, &placed) {
			return err
		}
		return o.Wrong(err)
	}
	return nil
}

// at returns an object with a place and a name, which may be empty.
func (w *walker) at(name string) Object {
	o := Object{place: w.place}
	names := w.lists
	if name != "" {
		names = slices.Concat(names, []string{name})
	}
	o.place.Object = strings.Join(names, ": ")
	return o
}

// itemsOf returns the items if the object is a list.
func itemsOf(id identity, raw json.RawMessage) (items []json.RawMessage, found bool, err error) {
	if !strings.HasSuffix(id.Kind, "List") {
		return nil, false, nil
	}
	var list struct {
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Items) == 0 {
		return nil, id.Kind == "List", err
	}
	// An empty list may be null.
	if err := json.Unmarshal(list.Items, &items); err != nil {
		return nil, true, errors.New("items must be a list of objects")
	}
	return items, true, nil
}

func (w *walker) items(list identity, items []json.RawMessage) error {
	var implied metav1.TypeMeta
	if kind := strings.TrimSuffix(list.Kind, "List"); kind != "" {
		implied = metav1.TypeMeta{APIVersion: list.APIVersion, Kind: kind}
	}
	outer := w.lists
	defer func() { w.lists = outer }()
	for i, item := range items {
		w.lists = slices.Concat(outer, []string{fmt.Sprintf("item %d of %s", i+1, list.Kind)})
		if err := w.object(item, implied); err != nil {
			return err
		}
	}
	return nil
}
