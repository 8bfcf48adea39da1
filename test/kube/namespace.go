package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MakeNamespace creates a namespace with a name prefix. It returns when pods can be created there.
func (c *Client) MakeNamespace(ctx context.Context, prefix string) (string, error) {
	made, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"},
	}, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil {
		return "", fmt.Errorf("making a namespace: %w", err)
	}
	return made.Name, Wait(ctx, "the service account of namespace "+made.Name, func(ctx context.Context) (string, error) {
		_, err := c.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return "", err
	})
}

// RemoveNamespace starts the deletion of a namespace.
func (c *Client) RemoveNamespace(ctx context.Context, name string) error {
	err := c.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing namespace %s: %w", name, err)
	}
	return nil
}
