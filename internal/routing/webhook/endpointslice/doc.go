// Package endpointslice is the admission webhook that keeps the hints of EndpointSlices when others rewrite them. It
// plans nothing: the stored slices of a routed Service are the plan, and only the routing controller changes it.
//
// Kubernetes' own controller removes the hints of every slice of a Service, or sets its own, each time it syncs the
// Service. A slice of a routed Service has the label vicinity.dev/routed: "true". In such a slice:
//
//   - An endpoint that the stored slice also has, with the same first address in the same zone, keeps its stored hints.
//   - A new endpoint gets no hints if the other endpoints have none, since that is the plan of a balanced Service.
//     Otherwise it gets the hints that it has in another slice of the Service, from which it is being moved, or else
//     a hint for its own zone. If others have hints for nodes, it gets the same ones as an endpoint on its node, or else
//     a hint for its node: the plan may skip a node or use its whole rack. In a zone that is taken out of service, it
//     gets the hints of the zone's other endpoints, for no zone.
//   - If a write then changes nothing but its manager and time, that is undone too. The API server stores nothing, and
//     notifies no watcher.
//
// Slices of other writers get the label from the routing controller. A later write without the label, for a slice of the
// same Service, gets it back.
//
// In a slice without that label and with endpoint-slice-hints.resources.gardener.cloud/consider: "true", each endpoint,
// ready or not, gets a hint for its own zone.
//
// A new slice has no stored hints. A stock kube-proxy ignores all hints of a Service if one ready endpoint has none, so
// without hints a new slice would spread the Service's traffic over the cluster until the controller writes its plan. So
// the other slices of the Service, from the cache, decide. Without them, or if the cache does not answer, the slice stays
// unchanged: the webhook never guesses a plan.
//
// The webhook ignores writes of the routing controller itself, excluded namespaces, the slices of default/kubernetes, and
// slices of host names. It refuses and fails no request: a slice that it cannot read is allowed unchanged, counted as
// failed and logged.
//
// The chart has the MutatingWebhookConfiguration. It selects a write if the new or the stored object has the labels, so
// the webhook checks the labels of the new one again.
package endpointslice
