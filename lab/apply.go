package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/image"
)

// ApplyForeign applies objects that were written for another cluster. It returns a sentence for each container that a program of the
// lab replaces. It applies nothing if one cannot be replaced.
func (c *Cluster) ApplyForeign(ctx context.Context, namespace string, objects []*unstructured.Unstructured) (instead []string, err error) {
	images := cri.Images{Program: c.options.Program, Folder: filepath.Dir(c.options.Program), Others: c.current().Images, Store: image.Store{Folder: c.dir.Images()}}
	manifests := ""
	for _, o := range objects {
		replaced, err := standIn(o, images)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		instead, manifests = append(instead, replaced...), manifests+"---\n"+string(text)
	}
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	return instead, client.Apply(ctx, namespace, manifests)
}

// standIn replaces the containers of an object's pods that do not run in the lab: by lab/echo where a container names a TCP port,
// else by lab/sleep. Such pods lose their init containers and volumes.
func standIn(o *unstructured.Unstructured, images cri.Images) (instead []string, err error) {
	if group := o.GroupVersionKind().Group; group != "" && group != "apps" && group != "batch" {
		return nil, nil // its pods are not of Kubernetes' own kinds
	}
	for _, path := range [][]string{{"spec"}, {"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
		fields, _, _ := unstructured.NestedMap(o.Object, path...)
		if fields["containers"] == nil {
			continue
		}
		var pod corev1.PodSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &pod); err != nil {
			return nil, fmt.Errorf("reading its pods: %w", err)
		}
		isForeign := func(c corev1.Container) bool {
			_, err := images.Resolve(c.Image)
			return err != nil
		}
		all := slices.Concat(pod.Containers, pod.InitContainers)
		foreign := slices.IndexFunc(all, isForeign)
		switch {
		case foreign < 0:
			return nil, nil
		case pod.RestartPolicy == corev1.RestartPolicyNever, pod.RestartPolicy == corev1.RestartPolicyOnFailure:
			return nil, fmt.Errorf("the lab cannot pull the image %s, and has no program that ends in its place; leave the object out, or map the image by \"vicinity lab up --images\"", all[foreign].Image)
		}
		pod.InitContainers, pod.Volumes, pod.SecurityContext = nil, nil, nil
		for i, c := range pod.Containers {
			if !isForeign(c) {
				pod.Containers[i].VolumeMounts, pod.Containers[i].VolumeDevices = nil, nil
				continue
			}
			by := corev1.Container{Name: c.Name, Image: "lab/sleep", Resources: c.Resources}
			does := "does nothing, since container " + c.Name + " names no TCP port"
			if at := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Protocol == "" || p.Protocol == corev1.ProtocolTCP }); at >= 0 {
				if err := yaml.Unmarshal([]byte(strings.ReplaceAll(echoContainer, "$NAME", `""`)), &by); err != nil {
					return nil, err
				}
				port := fmt.Sprint(c.Ports[at].ContainerPort)
				by.Image, by.ReadinessProbe, does = "lab/echo", nil, "answers HTTP on port "+port
				by.Env = append(by.Env, corev1.EnvVar{Name: "ECHO_HTTP_PORT", Value: port}, corev1.EnvVar{Name: "ECHO_TCP_PORT", Value: "0"}, corev1.EnvVar{Name: "ECHO_UDP_PORT", Value: "0"})
			}
			by.Ports = c.Ports
			pod.Containers[i] = by
			instead = append(instead, fmt.Sprintf("%s %s: %s %s, in place of %s", o.GetKind(), o.GetName(), by.Image, does, plaintext.Of(c.Image)))
		}
		if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&pod); err != nil {
			return nil, err
		}
		return instead, unstructured.SetNestedMap(o.Object, fields, path...)
	}
	return nil, nil
}
