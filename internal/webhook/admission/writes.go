package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
)

// Write is a write to judge. Stored is nil where something new is made.
type Write[T any] struct {
	Object, Stored *T
	Namespace      string
}

// OfWrites makes Judges of a function about creations and updates of one kind of object.
// They allow all other requests, those to subresources among them.
func OfWrites[T any](judge func(context.Context, Write[T]) (Verdict, error)) func() Judge {
	return func() Judge { return &writes[T]{judge: judge} }
}

// writes judges writes of objects that are decoded.
type writes[T any] struct {
	judge          func(context.Context, Write[T]) (Verdict, error)
	object, stored []byte
}

// Reset implements Judge.
func (w *writes[T]) Reset() { w.object, w.stored = nil, nil }

// Read implements Judge.
func (w *writes[T]) Read(r *Reader, stored bool) error {
	if stored {
		return r.Raw(&w.stored)
	}
	return r.Raw(&w.object)
}

// Judge implements Judge.
func (w *writes[T]) Judge(ctx context.Context, r *Request) (Verdict, error) {
	operation := admissionv1.Operation(r.Operation)
	if operation != admissionv1.Create && operation != admissionv1.Update || r.SubResource != "" {
		return Verdict{}, nil
	}
	write := Write[T]{Object: new(T), Namespace: r.Namespace}
	if err := json.Unmarshal(w.object, write.Object); err != nil {
		return Verdict{}, fmt.Errorf("reading the object: %w", err)
	}
	if operation == admissionv1.Update {
		write.Stored = new(T)
		if err := json.Unmarshal(w.stored, write.Stored); err != nil {
			return Verdict{}, fmt.Errorf("reading the stored object: %w", err)
		}
	}
	return w.judge(ctx, write)
}
