// Package endpointslice is the admission webhook that keeps the hints of EndpointSlices
// where others would take them away. It plans nothing: of the slices of a routed
// Service the stored ones are the plan, and only the routing controller changes it.
//
// # What it does
//
// Kubernetes' own controller strips the hints of every slice of a Service, or sets its
// own, each time it looks at the Service. A slice of a routed Service has the label
// vicinity.dev/routed: "true", which the routing controller puts on the Service and
// Kubernetes copies to the slices. Of such a slice:
//
//   - An endpoint that the stored slice has too, with the same first address in the
//     same zone, keeps the hints that it has there, or has none if it has none there.
//   - A new endpoint has no hints where the other endpoints have none, since that is the
//     plan of a balanced Service. Otherwise it has the hints that it has in another slice
//     of the Service, from which it is being moved, or else a hint for its own zone, and
//     one for a node where others are hinted to nodes (for the node alone where no
//     endpoint is hinted to a zone). That node is its own, or those that an endpoint
//     beside it on its node is hinted to: the plan may skip a node or use its whole rack.
//   - When nothing is left of a write then but who made it and when, that is undone too.
//     The object is what is stored, so the API server stores nothing and no watcher is
//     notified.
//
// The patch names hints, the label, annotations and managed fields, and nothing else of the
// slice. Fields that this version of the API does not know stay as they are written.
//
// Slices that others write, by hand or mirrored from Endpoints, get the label from the
// routing controller, which also takes it off. A write by others that lacks the label, of a
// slice of the same Service, gets it back.
//
// A slice without that label and with the one of the Gardener project,
// endpoint-slice-hints.resources.gardener.cloud/consider: "true", has each endpoint
// hinted to its own zone, ready or not. Hints for nodes stay, and so does an endpoint
// without a zone. Where a slice has both labels, the plan holds.
//
// # A new slice
//
// Kubernetes splits and joins slices, and a new slice has no stored one to take hints from.
// A stock kube-proxy ignores all hints of a Service if one ready endpoint has none, so
// without hints a new slice would make the whole Service cluster-wide for about a second,
// until the controller has written its plan. So the cached other slices of the Service, of
// the same address family, decide as above. Where there are none, or the cache does not
// answer, the slice is left as it is, which is balanced for a second: the webhook never
// guesses a plan.
//
// When a Service gets another port, Kubernetes writes all its slices anew, one after the
// other, with the endpoints shuffled. An endpoint that was moved out of a slice that is
// written already is in no slice then, and hinted to its own zone until the controller
// has written its plan.
//
// # What it leaves alone
//
// Writes of the routing controller itself, by the name of its user; the excluded namespaces;
// the slices of default/kubernetes; those of names instead of addresses; those with neither
// label. It never refuses a request and never lets one fail: what it cannot read it allows
// without a change, counts as failed and logs.
//
// # How it is installed
//
// A MutatingWebhookConfiguration has two webhooks with the same path, Path, which
// differ in the objects they select and, so, in their names:
//
//	routed.endpointslice.vicinity.dev     objectSelector: vicinity.dev/routed in ("true")
//	own-zone.endpointslice.vicinity.dev   objectSelector: vicinity.dev/routed notin ("true"),
//	                                      endpoint-slice-hints.resources.gardener.cloud/consider in ("true")
//
// and have in common:
//
//	rules:                   CREATE and UPDATE of endpointslices, discovery.k8s.io, v1, scope Namespaced
//	matchPolicy:             Equivalent
//	namespaceSelector:       kubernetes.io/metadata.name notin (kube-system, Vicinity's own)
//	matchConditions:         request.userInfo.username != "system:serviceaccount:NAMESPACE:NAME", the
//	                         controller's own user
//	failurePolicy:           Ignore
//	timeoutSeconds:          1, since the five workers of Kubernetes' controller wait for it
//	sideEffects:             None
//	reinvocationPolicy:      Never, since the answer depends on the stored slice
//	admissionReviewVersions: v1
//
// An object is selected when either it or the stored one has the labels, so the labels of the
// new one are checked again. The webhook has to get, list and watch EndpointSlices.
package endpointslice
