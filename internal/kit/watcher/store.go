package watcher

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Store passes what a reflector receives on to functions, and keeps nothing.
type Store[T any] struct {
	// Trim leaves out what is not needed of an object. It may be nil.
	Trim    cache.TransformFunc
	Set     func(T)
	Remove  func(T)
	Replace func(list []T, version string)
}

// Reflector makes a reflector that keeps a store up to date while it runs.
func Reflector[T runtime.Object](resource string, source cache.ListerWatcher, store *Store[T], options cache.ReflectorOptions) *cache.Reflector {
	var example T // its type is all that counts
	options.Name = resource
	return cache.NewReflectorWithOptions(source, example, reflected[T]{store}, options)
}

// reflected is a store as a reflector sees it.
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

// Add takes an object that is new.
func (s reflected[T]) Add(object any) error { return s.Update(object) }

// Update takes an object that is new or has changed.
func (s reflected[T]) Update(object any) error {
	typed, err := s.one(object)
	if err == nil {
		s.Set(typed)
	}
	return err
}

// Delete takes out an object.
func (s reflected[T]) Delete(object any) error {
	typed, err := s.one(object)
	if err == nil {
		s.Remove(typed)
	}
	return err
}

// Replace takes a list for all there is.
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

// Resync has nothing to do.
func (reflected[T]) Resync() error { return nil }

// Transformer trims objects that come by a watch with all there is, as the node does.
func (s reflected[T]) Transformer() cache.TransformFunc { return s.Trim }
