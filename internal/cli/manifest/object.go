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

// Error says where in which file something cannot be read.
type Error struct {
	File string
	// Document counts the documents of the file that are not empty, from 1.
	Document int
	// Object is the kind and name of the object, as far as they are known.
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

// Object is one of a file, with where it stands there.
type Object struct {
	Kind schema.GroupVersionKind
	// JSON is the whole of it. Items of a list may leave out their kind.
	JSON json.RawMessage

	name  string
	place Error
}

// String is the kind, namespace and name.
func (o Object) String() string { return o.place.Object }

// Wrong is an error about the object, with where it stands.
func (o Object) Wrong(err error) error {
	wrong := o.place
	wrong.Err = err
	return &wrong
}

// Walk reads the objects in YAML or JSON, of one or many documents, in their order. Of
// lists, as kubectl prints them, it reads the items. It ends at the first error, also
// of visit, which it returns as an Error unless reading itself fails.
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

// valuesOf reads a part of a file between lines of "---": any number of JSON values in a row, or one value in YAML. Together with
// an error come the values before it.
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

// String is for messages.
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
	lists []string // that the objects are in, with which item they are
}

// object visits one. Items of a list that do not say what they are have the type
// that the list implies.
func (w *walker) object(raw json.RawMessage, implied metav1.TypeMeta) error {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return w.at("").Wrong(errors.New("not a Kubernetes object: it must be a map with apiVersion, kind and metadata"))
	}
	var id identity
	// What does not fit here does not fit the type either, which says so in full; and
	// of kinds that are ignored it does not matter.
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

// at is an object of which only the name is known, which may be empty.
func (w *walker) at(name string) Object {
	o := Object{place: w.place}
	names := w.lists
	if name != "" {
		names = slices.Concat(names, []string{name})
	}
	o.place.Object = strings.Join(names, ": ")
	return o
}

// itemsOf finds the items if the object is a list.
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
