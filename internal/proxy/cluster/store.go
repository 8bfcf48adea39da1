package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// store passes what the client library watches on to the catalogue, and keeps nothing.
type store[T any] struct {
	trim    cache.TransformFunc
	set     func(T)
	remove  func(T)
	replace func(list []T, version string)
}

func (s *store[T]) one(object any) (T, error) {
	trimmed, err := s.trim(object)
	if err != nil {
		return *new(T), err
	}
	typed, ok := trimmed.(T)
	if !ok {
		return typed, fmt.Errorf("a %T came where a %T is watched", object, typed)
	}
	return typed, nil
}

// Add takes an object that is new.
func (s *store[T]) Add(object any) error { return s.Update(object) }

// Update takes an object that is new or has changed.
func (s *store[T]) Update(object any) error {
	typed, err := s.one(object)
	if err == nil {
		s.set(typed)
	}
	return err
}

// Delete takes out an object.
func (s *store[T]) Delete(object any) error {
	typed, err := s.one(object)
	if err == nil {
		s.remove(typed)
	}
	return err
}

// Replace takes a list for all there is.
func (s *store[T]) Replace(objects []any, version string) error {
	list := make([]T, len(objects))
	for i, object := range objects {
		var err error
		if list[i], err = s.one(object); err != nil {
			return err
		}
	}
	s.replace(list, version)
	return nil
}

// Resync has nothing to do.
func (*store[T]) Resync() error { return nil }

// Transformer trims objects that come by a watch with all there is, as the node does.
func (s *store[T]) Transformer() cache.TransformFunc { return s.trim }
