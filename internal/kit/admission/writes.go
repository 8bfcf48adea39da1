package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
)

// OfRequests makes Judges of a function. It gets the texts of the object and of the stored object, each nil if the request has none.
// The texts are valid until the function returns.
func OfRequests(judge func(ctx context.Context, r *Request, object, stored []byte) (Verdict, error)) func() Judge {
	return func() Judge { return &requests{judge: judge} }
}

type requests struct {
	judge          func(ctx context.Context, r *Request, object, stored []byte) (Verdict, error)
	object, stored []byte
}

// Reset implements Judge.
func (q *requests) Reset() { q.object, q.stored = nil, nil }

// Read implements Judge.
func (q *requests) Read(r *Reader, stored bool) error {
	if stored {
		return r.Raw(&q.stored)
	}
	return r.Raw(&q.object)
}

// Judge implements Judge.
func (q *requests) Judge(ctx context.Context, r *Request) (Verdict, error) {
	return q.judge(ctx, r, q.object, q.stored)
}

// Write is a write to judge. Stored is nil for a creation.
type Write[T any] struct {
	Object, Stored *T
	Namespace      string
}

// OfWrites makes Judges of a function about creations and updates of one kind of object. They allow all other requests, including
// those to subresources.
func OfWrites[T any](judge func(context.Context, Write[T]) (Verdict, error)) func() Judge {
	return OfRequests(func(ctx context.Context, r *Request, object, stored []byte) (Verdict, error) {
		operation := admissionv1.Operation(r.Operation)
		if operation != admissionv1.Create && operation != admissionv1.Update || r.SubResource != "" {
			return Verdict{}, nil
		}
		write := Write[T]{Object: new(T), Namespace: r.Namespace}
		if err := json.Unmarshal(object, write.Object); err != nil {
			return Verdict{}, fmt.Errorf("reading the object: %w", err)
		}
		if operation == admissionv1.Update {
			write.Stored = new(T)
			if err := json.Unmarshal(stored, write.Stored); err != nil {
				return Verdict{}, fmt.Errorf("reading the stored object: %w", err)
			}
		}
		return judge(ctx, write)
	})
}
