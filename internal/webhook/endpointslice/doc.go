// Package endpointslice is the admission webhook that keeps the hints of EndpointSlices
// where others would take them away. It plans nothing: of the slices of a routed
// Service the stored ones are the plan, and the routing controller alone changes it.
//
// # What it does
//
// Kubernetes' own controller strips the hints of every slice of a Service, or sets
// them to its own opinion, each time it looks at the Service. For a slice with the
// label vicinity.dev/routed: "true", which the routing controller puts on Services
// whose hints are its own, and which Kubernetes copies to their slices:
//
//   - An endpoint that the stored slice has too, with the same first address in the
//     same zone, has the hints that it had: none, if it had none.
//   - A new endpoint has none where the other endpoints have none, since that is the
//     plan of a balanced Service. Otherwise it has the hints that it has in another
//     slice of the Service, from which it is being moved, or else its own zone, and a
//     node where others are hinted to nodes: the node alone where no other is hinted to a
//     zone. The node is its own, unless an endpoint beside it on that node is hinted to
//     others: to those of its rack, or to none where the plan skips the node.
//   - When nothing is left then of a write but what says when and by whom it was made,
//     that is restored too: the object is what is stored, byte for byte, the API server
//     stores nothing, and nobody who watches hears of it.
//
// Slices that others write, by hand or mirrored from Endpoints, have the label from the
// routing controller, and those who write them know nothing of it: a write that lacks it,
// of a slice of the same Service, gets it back. The controller takes it from slices that
// it lets go of.
//
// A slice without that label, and with the one of the Gardener project,
// endpoint-slice-hints.resources.gardener.cloud/consider: "true", has each endpoint
// hinted to its own zone, ready or not. Only the zones are replaced: hints for nodes
// stay, and so does an endpoint without a zone. Where a slice has both labels, the
// controller has looked at the annotations of the Service too, and its plan holds.
//
// # A new slice
//
// Kubernetes splits and joins slices, and a slice that is new has no stored one to
// take hints from. A stock kube-proxy ignores the hints of a Service as soon as one
// ready endpoint has none, so a new slice that is left alone makes the whole Service
// cluster-wide until the controller has written its plan, which takes about a second;
// while a new endpoint that is hinted to its own zone makes that zone less loaded, and
// takes nothing from others but what was moved. So the other slices of the Service, of
// the same address family, decide, as the cache of the process has them: an endpoint
// that moved takes its hints along, and the rest are as above. Where there are none,
// or the cache cannot say, the slice is left as it is written, which is balanced for a
// second: what is not known to be planned is never hinted by guessing.
//
// When a Service gets another port, Kubernetes writes all its slices anew, one after the
// other, with the endpoints shuffled. An endpoint that was moved out of a slice that is
// written already is then known to none, and hinted to its own zone until the controller
// has written its plan.
//
// A new slice that somebody else writes has no label, so it is none to look at until the
// controller has seen it.
//
// # What it leaves alone
//
// Writes of the routing controller itself, by the name of its user; the namespaces
// excluded; the slices of default/kubernetes; those of names instead of addresses;
// what has neither label. It never refuses a request and never lets one fail: what it
// does not understand it allows without a change, counts as failed and logs.
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
//	                         controller's own user, whose writes would only be passed on
//	failurePolicy:           Ignore
//	timeoutSeconds:          1, since Kubernetes' controller has five workers, each of which waits for it
//	sideEffects:             None
//	reinvocationPolicy:      Never, since the answer depends on the stored slice
//	admissionReviewVersions: v1
//
// An object is selected when either it or the stored one has the labels, so the handler
// looks at the labels of the new one again. It needs no permission but to get, list and
// watch EndpointSlices.
//
// # Speed
//
// A review of a slice with 1,000 endpoints, 0.6 MB, takes 1.6 ms of a processor (99th
// percentile 2.5 ms, 15 kB allocated) with the tokens of encoding/json/jsontext, which is
// stable from Go 1.27 on; a scanner of our own took 1.0 ms, which is not worth its 270
// lines. To decode it by encoding/json takes 13 ms or more and 1.8 MB, beyond the 5 ms that
// a review may take, so it is read in place (BenchmarkReview, BenchmarkReading).
package endpointslice
