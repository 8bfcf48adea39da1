package proxy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/lease"
	"vicinity.dev/vicinity/internal/proxy/probe"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// proving probes the node by a Service whose only endpoint is this proxy. A node that fails acknowledges nothing,
// because handed-over Services would not work there. The programmer's goroutine owns its state.
type proving struct {
	// service names the probed Service. The chart makes it without a selector.
	service types.NamespacedName
	prober  *probe.Prober
	// results wakes the programmer after a new result.
	results chan struct{}

	// endpoints are the targets of the rules of the probed Service.
	endpoints perFamily[netip.AddrPort]
	// reported are the reported results. absence is the reported reason why nothing is probed.
	reported map[ruleset.Family]probe.State
	absence  string
	// missing is when the kernel began to lack the probed rules, zero if it has them. missingReason is the reported
	// reason.
	missing       perFamily[time.Time]
	missingReason string
	// verified is the highest resource version that a probe allows to acknowledge.
	verified uint64
	// begun means that a sync has set the targets.
	begun bool
}

func (p *programmer) isProbeService(name types.NamespacedName) bool {
	return p.proving != nil && p.proving.service == name
}

// probedPort returns the first TCP port of the Service, or the reason why it is not probed.
func probedPort(service *corev1.Service) (port *corev1.ServicePort, absence string) {
	switch {
	case service == nil:
		return nil, "the Service does not exist"
	case service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone:
		return nil, "the Service has no cluster IP"
	case len(service.Spec.Selector) > 0:
		return nil, "the Service has a selector, so it may have other endpoints"
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolTCP || p.Protocol == "" })
	if i < 0 {
		return nil, "the Service has no TCP port"
	}
	return &service.Spec.Ports[i], ""
}

// compiled compiles the cluster IP and the first TCP port of the probed Service, with this process as the only endpoint.
func (v *proving) compiled(service *corev1.Service, o compile.Options) compile.Result {
	v.endpoints = perFamily[netip.AddrPort]{}
	port, _ := probedPort(service)
	if port == nil {
		return compile.Result{}
	}
	meta := metav1.ObjectMeta{
		Namespace: service.Namespace, Name: service.Name, CreationTimestamp: service.CreationTimestamp,
		Labels: map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName},
	}
	spec := corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: port.Port, Protocol: corev1.ProtocolTCP}}}
	var all []*discoveryv1.EndpointSlice
	for i, family := range ruleset.Families {
		address := compile.ClusterIP(service, family)
		if !address.IsValid() || !o.Has(family) {
			continue
		}
		at := v.prober.Serve(family, o.Node.Addresses)
		if v.endpoints[i] = at; !at.IsValid() {
			continue
		}
		spec.ClusterIPs = append(spec.ClusterIPs, address.String())
		spec.IPFamilies = append(spec.IPFamilies, corev1.IPFamily(family.Name()))
		number, protocol, unnamed := int32(at.Port()), corev1.ProtocolTCP, ""
		all = append(all, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: service.Namespace, Name: family.Name(), Labels: map[string]string{discoveryv1.LabelServiceName: service.Name},
			},
			AddressType: discoveryv1.AddressType(family.Name()), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}},
			Ports: []discoveryv1.EndpointPort{{Name: &unnamed, Port: &number, Protocol: &protocol}},
		})
	}
	if len(all) == 0 {
		return compile.Result{}
	}
	spec.ClusterIP = spec.ClusterIPs[0]
	o.AllServices = true // it is served by slices, which only this node has
	return compile.Service(compile.Input{Service: &corev1.Service{ObjectMeta: meta, Spec: spec}, Slices: all}, o)
}

// setProbeTargets tells the prober which rules the kernel has of the probed Service.
func (p *programmer) setProbeTargets() {
	v := p.proving
	if v == nil {
		return
	}
	v.begun = true
	service := p.catalogue.Entry(v.service).Service
	port, absence := probedPort(service)
	if absence != v.absence {
		v.absence = absence
		if absence != "" {
			p.log.Info("Not probing whether packets of the node pass the rules", "service", v.service.String(), "cause", absence)
		}
	}
	var targets []probe.Target
	var missing perFamily[time.Time]
	for i, f := range p.families {
		if port == nil {
			break
		}
		address := compile.ClusterIP(service, f.number)
		if !address.IsValid() {
			continue
		}
		target := probe.Target{Family: f.number, Front: netip.AddrPortFrom(address, uint16(port.Port))}
		if known := p.records[v.service]; known != nil && !slices.ContainsFunc(known.ports[i], f.pending) {
			target.Endpoint = v.endpoints[i]
		}
		if v.endpoints[i].IsValid() && !target.Endpoint.IsValid() {
			missing[i] = p.clock.Now()
			if !v.missing[i].IsZero() {
				missing[i] = v.missing[i]
			}
		}
		targets = append(targets, target)
	}
	v.missing = missing
	v.prober.Aim(targets)
}

// reportProbes reports new results of probes, and updates the acknowledgement.
func (p *programmer) reportProbes() {
	v := p.proving
	if v == nil || !v.begun {
		return
	}
	p.reportMissingRules()
	states := v.prober.States()
	for _, f := range p.families {
		state := states[f.number]
		p.metrics.probeFailing.WithLabelValues(f.String()).Set(0)
		if state.Outcome == probe.Failed {
			p.metrics.probeFailing.WithLabelValues(f.String()).Set(1)
		}
		before := v.reported[f.number]
		if state.Outcome == probe.Pending || state.Outcome == before.Outcome && state.Reason == before.Reason {
			continue
		}
		v.reported[f.number] = state
		p.reportProbe(v, f.String(), before.Outcome, state)
	}
	p.onProgrammed(p.acknowledged())
}

// missingAfter is how long the kernel may lack the probed rules before the report.
const missingAfter = 15 * time.Second

// reportMissingRules reports that nothing can be probed because the kernel lacks the rules.
func (p *programmer) reportMissingRules() {
	v, reason := p.proving, ""
	for i, f := range p.families {
		if since := v.missing[i]; reason == "" && !since.IsZero() && p.clock.Since(since) >= missingAfter {
			reason = fmt.Sprintf("%s is not probed, because the kernel lacks the rules of the Service %s", f, v.service)
		}
	}
	if reason != v.missingReason && reason != "" {
		p.log.Info("The node cannot be probed and acknowledges nothing", "service", v.service.String(), "cause", reason)
	}
	v.missingReason = reason
}

func (p *programmer) reportProbe(v *proving, family string, before probe.Outcome, state probe.State) {
	switch {
	case state.Outcome == probe.Failed:
		p.log.Info("Packets of the node bypass the rules", "family", family, "cause", state.Reason)
		p.warnings.Bypassed(v.service, family, state.Reason, p.clock.Now())
	case state.Outcome == probe.Impossible:
		p.log.Info("Not probing whether packets of the node pass the rules", "service", v.service.String(), "family", family, "cause", state.Reason)
	case before == probe.Failed:
		p.log.Info("Packets of the node pass the rules again", "family", family)
		p.warnings.Bypassed(v.service, family, "", p.clock.Now())
	}
}

// limitToVerified limits an acknowledgement to probed versions. A Service may be handed over a moment later, so each new
// version needs a new probe.
func (p *programmer) limitToVerified(a lease.Acknowledgement) lease.Acknowledgement {
	v := p.proving
	if v == nil {
		return a
	}
	verdict := v.prober.Verdict(p.clock.Now())
	switch {
	case !verdict.Holds:
		v.verified = 0
		return lease.Acknowledgement{Failure: cmp.Or(verdict.Failure, v.missingReason)}
	case !verdict.Recent && a.Version > v.verified:
		if !verdict.Due {
			v.prober.Ask()
		}
		a.Version = v.verified
		if a.Version == 0 {
			a.Except = nil
		}
	default:
		v.verified = a.Version
	}
	return a
}

func (p *programmer) probeResults() <-chan struct{} {
	if p.proving == nil {
		return nil
	}
	return p.proving.results
}
