// Package endpointslice is the admission webhook that keeps the hints of EndpointSlices
// where others would take them away. It plans nothing: of the slices of a routed
// Service the stored ones are the plan, and only the routing controller changes it.
//
// Kubernetes' own controller strips the hints of every slice of a Service, or sets its own, each
// time it looks at the Service. A slice of a routed Service has the label vicinity.dev/routed: "true".
// Of such a slice:
//
//   - An endpoint that the stored slice has too, with the same first address in the
//     same zone, keeps the hints that it has there, or has none if it has none there.
//   - A new endpoint has no hints where the other endpoints have none, since that is the
//     plan of a balanced Service. Otherwise it has the hints that it has in another slice
//     of the Service, from which it is being moved, or else a hint for its own zone, and
//     one for a node where others are hinted to nodes. That node is its own, or those that an
//     endpoint beside it on its node is hinted to: the plan may skip a node or use its whole rack.
//   - When nothing is left of a write then but who made it and when, that is undone too. The API
//     server stores nothing, and no watcher is notified.
//
// Slices that others write get the label from the routing controller. A write by others that lacks
// the label, of a slice of the same Service, gets it back.
//
// A slice without that label and with endpoint-slice-hints.resources.gardener.cloud/consider: "true"
// has each endpoint hinted to its own zone, ready or not.
//
// A new slice has no stored one to take hints from. A stock kube-proxy ignores all hints of a Service
// if one ready endpoint has none, so without hints a new slice would make the whole Service
// cluster-wide until the controller has written its plan. So the cached other slices of the Service
// decide. Where there are none, or the cache does not answer, the slice is left as it is: the webhook
// never guesses a plan.
//
// The webhook leaves alone the writes of the routing controller itself, excluded namespaces, the slices
// of default/kubernetes, and those of names instead of addresses. It never refuses a request and never
// lets one fail: what it cannot read it allows without a change, counts as failed and logs.
//
// The chart has the MutatingWebhookConfiguration. An object is selected when either it or the stored
// one has the labels, so the labels of the new one are checked again.
package endpointslice
