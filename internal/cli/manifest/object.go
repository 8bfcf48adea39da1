package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Error says where in which file something cannot be read.
type Error struct {
	File string
	// Document counts the documents of the file that are not empty, from 1.
	Document int
	// Line is where in the file the mistake is or, if that is not known, where the
	// document starts.
	Line int
	// Object is the kind and name of the object, as far as they are known.
	Object string
	Err    error
}

func (e *Error) Error() string {
	where := fmt.Sprintf("%s: document %d, line %d", e.File, e.Document, e.Line)
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
	data, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	number := 0
	for _, part := range splitDocuments(data) {
		documents, err := part.values()
		for _, document := range documents {
			number++
			w := walker{visit: visit, place: Error{File: file, Document: number, Line: document.line}}
			if err := w.object(document.json, metav1.TypeMeta{}); err != nil {
				return err
			}
		}
		if err != nil {
			var failure *syntaxError
			if !errors.As(err, &failure) {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			return &Error{file, number + 1, failure.line, "", failure.err}
		}
	}
	return nil
}

// identity is what every object has.
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

// walker visits the objects of one document.
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
