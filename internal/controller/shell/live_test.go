package shell

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/test/rig"
)

// The API server refuses a patch of an object that has changed or is gone, in the words that
// IsChanged understands. A patch that breaks a rule is another error.
func TestGuardsOfTheAPIServer(t *testing.T) {
	c := rig.Start(t)
	objects, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := c.MakeNamespace(t.Context(), "guards-")
	if err != nil {
		t.Fatal(err)
	}
	c.Make(namespace, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}")
	read, err := c.CoreV1().Services(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale, gone := read.DeepCopy(), read.DeepCopy()
	stale.ResourceVersion, gone.Name = "1", "gone"
	if err := Patch(t.Context(), objects, stale.DeepCopy(), SetLabel(stale, "a", "b")); !IsChanged(err) {
		t.Errorf("an old resource version: %v", err)
	}
	if err := Patch(t.Context(), objects, gone.DeepCopy(), SetLabel(gone, "a", "b")); !IsChanged(err) {
		t.Errorf("an object that is gone: %v", err)
	}
	if err := Patch(t.Context(), objects, read.DeepCopy(), SetLabel(read, "a", "no value!")); err == nil || IsChanged(err) {
		t.Errorf("a label that is not valid: %v", err)
	}
}
