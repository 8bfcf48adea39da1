// Package certificates gives the admission webhooks a certificate that the API server
// trusts, and renews it without a restart long before it expires.
//
// The rotator of cert-controller makes an authority and a certificate, keeps both in
// one Secret, and writes the authority into the webhook configurations. This package
// runs it, and serves the certificate as soon as the Secret changes. Nothing is mounted, so
// there is no wait for a kubelet, and the key is in memory only.
//
// All replicas do the same. Of two that write the Secret at once, one gets a conflict and
// takes what the other wrote.
//
// # What it needs
//
// The Secret must exist, and may be empty; the chart makes it. The permissions are
//
//   - secrets, in Vicinity's namespace: get, list, watch and update of the one Secret. The
//     right to create Secrets cannot be limited to a name, and gives the tokens of all
//     accounts of the namespace, so a deleted Secret is made anew by the chart alone.
//   - mutatingwebhookconfigurations and validatingwebhookconfigurations of the group
//     admissionregistration.k8s.io: get, list and watch, and update of those named.
//     The rotator watches a kind only if it is given a name of it.
//
// and there must be a writable folder for temporary files, where the rotator waits for the
// certificate, without its key.
//
// # When the authority changes
//
// A new certificate of the same authority is trusted at once. The authority, which is valid
// for ten years, is replaced together with the certificate that it signed, and an API server
// refuses the new certificate until it sees the new authority: for less than a second the
// webhooks are not called, and the failurePolicy of their configuration holds.
package certificates
