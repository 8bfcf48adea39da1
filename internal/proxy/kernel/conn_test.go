package kernel_test

import (
	"reflect"
	"testing"

	"vicinity.dev/vicinity/internal/proxy/kernel"
)

// Nothing gets to the socket or the pending batch of a connection past its mutex.
func TestConnKeepsItsSocketToItself(t *testing.T) {
	conn := reflect.TypeFor[kernel.Conn]()
	for _, field := range reflect.VisibleFields(conn) {
		if field.IsExported() {
			t.Errorf("field %s is exported", field.Name)
		}
	}
	if _, found := reflect.TypeFor[*kernel.Conn]().MethodByName("Ask"); found {
		t.Error("Ask is exported")
	}
}
