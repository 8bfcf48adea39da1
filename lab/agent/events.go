package agent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	broadcast "k8s.io/client-go/tools/record"
)

// eventSink writes events to the API.
func eventSink(client kubernetes.Interface) broadcast.EventSink {
	return &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(corev1.NamespaceAll)}
}
