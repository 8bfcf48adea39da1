//go:build suite

// Package conformance pins Kubernetes' own end-to-end tests, and the programs that their
// pods run, to the releases of lab/kubernetes. It has no code: "make suite" builds them.
//
// The module files lack the list of replaces that Kubernetes needs. It is in the module files
// of lab/kubernetes only, and the Makefile adds it.
package conformance

import (
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/images/agnhost"
	_ "k8s.io/kubernetes/test/images/regression-issue-74839"
)
