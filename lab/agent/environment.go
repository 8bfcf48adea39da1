package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// environment is that of a container, in the order in which names were first set.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) lookup(name string) (string, bool) {
	value, ok := e.values[name]
	return value, ok
}

func (e *environment) list() []string {
	list := make([]string, len(e.names))
	for i, name := range e.names {
		list[i] = name + "=" + e.values[name]
	}
	return list
}

func (w *worker) environment(ctx context.Context, l *launch) (*environment, error) {
	e := &environment{values: map[string]string{}}
	e.set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	e.set("HOME", "/root")
	e.set("HOSTNAME", hostname(l.pod))
	if l.spec.TTY {
		kind, value, _ := strings.Cut(terminalKind, "=")
		e.set(kind, value)
	}
	w.setLocation(e, l)
	w.setAPIService(e)
	for i := range l.spec.EnvFrom {
		if err := w.envFrom(ctx, e, l.pod, &l.spec.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range l.spec.Env {
		v := &l.spec.Env[i]
		if v.ValueFrom == nil {
			e.set(v.Name, expand(v.Value, e.lookup))
			continue
		}
		value, ok, err := w.valueFrom(ctx, l, v.ValueFrom)
		if err != nil {
			return nil, err
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	return e, nil
}

// setLocation tells the lab's own programs where they run, so that pods need not pass it
// on.
func (w *worker) setLocation(e *environment, l *launch) {
	e.set("VICINITY_POD", l.pod.Name)
	e.set("VICINITY_NAMESPACE", l.pod.Namespace)
	name, value, _ := strings.Cut(NodeVariable(w.node.Name), "=")
	e.set(name, value)
	e.set("VICINITY_ZONE", w.node.Zone)
	e.set("VICINITY_REGION", w.node.Region)
	e.set("VICINITY_POD_IPS", addressText(podAddresses(l.pod, &l.record)))
}

// NodeVariable is an entry in the environment of every container of a node.
func NodeVariable(node string) string { return "VICINITY_NODE=" + node }

// setAPIService sets the variables of the Service "kubernetes", as in every pod of a
// cluster.
func (w *worker) setAPIService(e *environment) {
	host := w.node.shape.ServiceCIDRs()[0].Addr().Next().String()
	for _, v := range [][2]string{
		{"KUBERNETES_SERVICE_HOST", host},
		{"KUBERNETES_SERVICE_PORT", "443"},
		{"KUBERNETES_SERVICE_PORT_HTTPS", "443"},
		{"KUBERNETES_PORT", "tcp://" + host + ":443"},
		{"KUBERNETES_PORT_443_TCP", "tcp://" + host + ":443"},
		{"KUBERNETES_PORT_443_TCP_PROTO", "tcp"},
		{"KUBERNETES_PORT_443_TCP_PORT", "443"},
		{"KUBERNETES_PORT_443_TCP_ADDR", host},
	} {
		e.set(v[0], v[1])
	}
}

func (w *worker) envFrom(ctx context.Context, e *environment, pod *corev1.Pod, from *corev1.EnvFromSource) error {
	var err error
	values := map[string]string{}
	optional := false
	switch {
	case from.ConfigMapRef != nil:
		optional = ptr.Deref(from.ConfigMapRef.Optional, false)
		var object *corev1.ConfigMap
		if object, err = w.agent.objects.configMap(ctx, pod.Namespace, from.ConfigMapRef.Name); err == nil {
			values = object.Data
		}
	case from.SecretRef != nil:
		optional = ptr.Deref(from.SecretRef.Optional, false)
		var object *corev1.Secret
		if object, err = w.agent.objects.secret(ctx, pod.Namespace, from.SecretRef.Name); err == nil {
			for key, value := range object.Data {
				values[key] = string(value)
			}
		}
	}
	if apierrors.IsNotFound(err) && optional {
		return nil
	} else if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !strings.Contains(key, "=") {
			e.set(from.Prefix+key, values[key])
		}
	}
	return nil
}

// valueFrom returns the value of a variable, and false if it must not be set.
func (w *worker) valueFrom(ctx context.Context, l *launch, from *corev1.EnvVarSource) (string, bool, error) {
	var err error
	switch {
	case from.FieldRef != nil:
		value, err := podField(l.pod, &l.record, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := w.resourceField(l.pod, l.spec, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		var object *corev1.ConfigMap
		if object, err = w.agent.objects.configMap(ctx, l.pod.Namespace, ref.Name); err == nil {
			if value, ok := object.Data[ref.Key]; ok {
				return value, true, nil
			}
			err = missingKey(ref.Key, "ConfigMap", l.pod.Namespace, ref.Name)
		} else if !apierrors.IsNotFound(err) {
			return "", false, err
		}
		return "", false, unlessOptional(ref.Optional, err)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		var object *corev1.Secret
		if object, err = w.agent.objects.secret(ctx, l.pod.Namespace, ref.Name); err == nil {
			if value, ok := object.Data[ref.Key]; ok {
				return string(value), true, nil
			}
			err = missingKey(ref.Key, "Secret", l.pod.Namespace, ref.Name)
		} else if !apierrors.IsNotFound(err) {
			return "", false, err
		}
		return "", false, unlessOptional(ref.Optional, err)
	}
	return "", false, nil
}

// resourceField returns a resource of the given container, or of the one that ref names.
func (w *worker) resourceField(pod *corev1.Pod, spec *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		if spec = findContainer(pod, ref.ContainerName); spec == nil {
			return "", fmt.Errorf("resourceFieldRef: container %q is none of the pod's", ref.ContainerName)
		}
	}
	allocatable, err := nodeResources(w.node.Node)
	if err != nil {
		return "", err
	}
	return resourceField(spec, allocatable, ref)
}

func missingKey(key, kind, namespace, name string) error {
	return fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, namespace, name)
}

// unlessOptional returns the error unless what is missing is optional.
func unlessOptional(optional *bool, err error) error {
	if ptr.Deref(optional, false) {
		return nil
	}
	return err
}
