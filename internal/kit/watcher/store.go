package watcher

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Store passes the objects of a reflector to functions, and keeps none.
type Store[T any] struct {
	// Trim removes unneeded parts of an object. It may be nil.
	Trim    cache.TransformFunc
	Set     func(T)
	Remove  func(T)
	Replace func(list []T, version string)
}

// Reflector returns a reflector that keeps a store up to date while it runs.
func Reflector[T runtime.Object](resource string, source cache.ListerWatcher, store *Store[T], options cache.ReflectorOptions) *cache.Reflector {
	var example T // only its type counts
	options.Name = resource
	return cache.NewReflectorWithOptions(source, example, reflected[T]{store}, options)
}

// reflected implements the store of a reflector.
type reflected[T any] struct{ *Store[T] }

func (s reflected[T]) one(object any) (T, error) {
	if s.Trim != nil {
		var err error
		if object, err = s.Trim(object); err != nil {
			return *new(T), err
		}
	}
	typed, ok := object.(T)
	if !ok {
		return typed, fmt.Errorf("received a %T, want a %T", object, typed)
	}
	return typed, nil
}

// Add passes on a new object.
func (s reflected[T]) Add(object any) error { return s.Update(object) }

// Update passes on a new or changed object.
func (s reflected[T]) Update(object any) error {
	typed, err := s.one(object)
	if err == nil {
		s.Set(typed)
	}
	return err
}

// Delete passes on a deleted object.
func (s reflected[T]) Delete(object any) error {
	typed, err := s.one(object)
	if err == nil {
		s.Remove(typed)
	}
	return err
}

// Replace passes on a list of all objects.
func (s reflected[T]) Replace(objects []any, version string) error {
	list := make([]T, len(objects))
	for i, object := range objects {
		var err error
		if list[i], err = s.one(object); err != nil {
			return err
		}
	}
	s.Store.Replace(list, version)
	return nil
}

// Resync does nothing.
func (reflected[T]) Resync() error { return nil }

// Transformer returns Trim for objects of a list by watch.
func (s reflected[T]) Transformer() cache.TransformFunc { return s.Trim }
