// Package v1alpha1 is Vicinity's API: the objects that users write, beside
// annotations of Services, and the objects that Vicinity writes for its own
// proxies and DNS server.
//
// Validation rules are in the markers, so that the API server checks them at
// every write. The types have no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=vicinity.dev
package v1alpha1
