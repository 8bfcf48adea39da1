// Package v1alpha1 is Vicinity's API: what users write besides annotations of
// Services, and what Vicinity writes for its own proxies.
//
// The rules for what may be written are in the markers, so that the API server checks
// them at every write. The types have no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=vicinity.dev
package v1alpha1
