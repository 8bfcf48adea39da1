// Package certificates gives the admission webhooks their TLS: a certificate that the
// API server believes, and a new one long before it ends, without a restart.
//
// The rotator of cert-controller makes an authority and a certificate, keeps both in
// one Secret, and writes the authority into the webhook configurations. This package
// runs it, and serves the certificate from the Secret itself, as soon as the Secret
// changes: nothing is mounted, so nobody waits for a kubelet, and the key is in memory
// only.
//
// All replicas do the same, whoever leads. Two that write the Secret at once conflict,
// and the loser takes what the winner wrote.
//
// # What it needs
//
// The Secret must exist, and may be empty; the chart makes it. The permissions are
//
//   - secrets, in Vicinity's namespace: get, list, watch and update of the one Secret. To
//     create one cannot be held to a name, and gives tokens of all accounts of the
//     namespace: a Secret that was deleted is made anew by the chart.
//   - mutatingwebhookconfigurations and validatingwebhookconfigurations of the group
//     admissionregistration.k8s.io: get, list and watch, and update of those named.
//     The rotator watches a kind only if it is given a name of it.
//
// and there must be a folder for temporary files that can be written, for a mark that
// the rotator waits for: the certificate, without its key.
//
// # When the authority changes
//
// A certificate is renewed in silence: the authority stays. The authority itself, which
// is good for ten years, is replaced together with the certificate it signed, and an
// API server that has not heard of the new one yet refuses the new certificate: for
// less than a second the webhooks are not asked, and fail open.
package certificates
