package controller

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/consumer"
)

// Values of Options.MarkServices: which Services that are routed by hints get v1alpha1.MarkRouted. MarkAuto is for clusters
// where a program needs it.
const (
	MarkAuto   = "auto"
	MarkAlways = "always"
	MarkNever  = "never"
)

const (
	ciliumEvery   = time.Minute
	ciliumTimeout = 5 * time.Second
)

// ciliumWatch reads cilium-config in kube-system, the only namespace where the controller may.
type ciliumWatch struct {
	client client.Reader
	memory *memory
	// settings are those of the last answer, nil before it. They are empty without Cilium.
	settings atomic.Pointer[consumer.Settings]
	failing  atomic.Int32 // 1 if the last read failed
	absent   bool         // the last read found no ConfigMap
}

// run reads the settings before the first sync, and then every minute.
func (c *ciliumWatch) run(ctx context.Context, q queue) error {
	c.read(ctx)
	go func() {
		_ = wait.PollUntilContextCancel(ctx, ciliumEvery, false, func(ctx context.Context) (done bool, err error) {
			if c.read(ctx) {
				c.memory.wake(q)
			}
			return false, nil
		})
	}()
	return nil
}

// read reports whether the settings have changed. Without an answer the last ones stay, and so they do when the ConfigMap
// is first absent after an answer: installing Cilium again replaces it.
func (c *ciliumWatch) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, ciliumTimeout)
	defer cancel()
	found := new(corev1.ConfigMap)
	err := c.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "cilium-config"}, found)
	if client.IgnoreNotFound(err) != nil {
		if c.failing.Swap(1) == 0 {
			log.FromContext(ctx).Error(err, "cannot read the ConfigMap cilium-config in kube-system, so its last answer counts; before the first one, no Service gets a mark")
		}
		return false
	}
	c.failing.Store(0)
	vanished := err != nil && !c.absent && c.settings.Load() != nil
	if c.absent = err != nil; vanished {
		return false
	}
	before := c.settings.Swap(&consumer.Settings{Cilium: found.Data})
	return before == nil || !maps.Equal(before.Cilium, found.Data)
}

// wantsMark reports whether the Service should have the mark once it is routed by hints. While that is not known, the
// mark stays as it is.
func (s *pass) wantsMark() bool {
	mode, cilium := s.options.MarkServices, s.cilium.settings.Load()
	if mode == MarkAuto && cilium == nil {
		return consumer.IsMarked(s.in.Service)
	}
	return (mode == MarkAlways || mode == MarkAuto && cilium.CiliumFollows()) && consumer.NeedsMark(s.in.Service)
}

// changeMark returns the operations that set or remove the mark, empty if it is as it should be.
func (s *pass) changeMark(want bool) []shell.Operation {
	if want == consumer.IsMarked(s.in.Service) {
		return nil
	}
	value := ""
	if want {
		value = v1alpha1.MarkRouted
	}
	return []shell.Operation{shell.SetAnnotation(s.in.Service, v1alpha1.AnnotationTopologyMode, value)}
}

// syncMark sets or removes the mark of a routed Service, with growing delays while that is undone or refused.
func (s *pass) syncMark(ctx context.Context) error {
	want, losses := s.wantsMark(), &s.record.mark
	operations := s.changeMark(want)
	if len(operations) == 0 {
		losses.confirm(s.now)
		s.requeueAfter(losses.untilProof(s.now))
		return nil
	}
	if !losses.written.IsZero() && want == s.record.marked {
		losses.noteLoss(s.now)
		losses.written = time.Time{}
		log.FromContext(ctx).Info("the mark of the Service has changed since it was written", "times", losses.Failures, "wait", losses.Wait(s.now).String())
	}
	if wait := losses.Wait(s.now); wait > 0 {
		s.requeueAfter(wait)
		return nil
	}
	_, err := s.patchService(ctx, "annotation "+v1alpha1.AnnotationTopologyMode, operations...)
	if shell.IsChanged(err) || ctx.Err() != nil {
		return err
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return err // no webhook or policy has refused it
	}
	if losses.written, s.record.marked = s.now, want; err != nil { // it is lost at the next sync
		s.requeueAfter(firstWait)
		log.FromContext(ctx).Error(err, "the mark of the Service is refused")
	}
	return nil
}

// Remedies in a condition.
const (
	markFought = "another writer removes or refuses it"
	markUnread = "a program ignored its hints when cilium-config in kube-system was last read; it cannot be read now"
)

// notInForce returns stateNotInForce and a program that serves the Service without following its hints, if one is known.
// Until cilium-config is read, it repeats the state that an earlier controller reported.
func (s *pass) notInForce(d *routing.Decision) (state, why string) {
	cilium, force := s.cilium.settings.Load(), inForce(d, s.in.Service, false)
	switch {
	case force == nil || force.Delivery != allocate.DeliveryHints || s.in.Service.Labels[v1alpha1.LabelRouted] != "true":
		return "", ""
	case cilium == nil && s.options.MarkServices != MarkNever && routing.TroubleNotInForce.IsOn(s.in.Service):
		return stateNotInForce, markUnread
	case cilium == nil:
		return "", ""
	}
	kinds := force.HintKinds()
	if !kinds.Zones && !kinds.Nodes {
		return "", ""
	}
	wanted := s.in.Service
	bare := &corev1.Service{Spec: corev1.ServiceSpec{TrafficDistribution: wanted.Spec.TrafficDistribution}}
	if s.wantsMark() { // which will be written
		wanted = bare.DeepCopy()
		wanted.Annotations = map[string]string{v1alpha1.AnnotationTopologyMode: v1alpha1.MarkRouted}
	}
	for _, c := range cilium.Consumers() {
		why, remedy := c.Ignores(wanted, kinds)
		if why == "" && s.wantsMark() && s.record.mark.isReported() {
			why, _ = c.Ignores(bare, kinds)
			remedy = markFought
		}
		if why != "" {
			return stateNotInForce, fmt.Sprintf("%s serves the Service and ignores its hints: %s; %s", c.Name, why, remedy)
		}
	}
	return "", ""
}
