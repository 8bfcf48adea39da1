package cli

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/topology"
)

// completeFlags lets shells complete the flags that name objects of a cluster.
func (c connector) completeFlags(root *cobra.Command) {
	command.Walk(root, func(cmd *cobra.Command) {
		for name, resource := range map[string]string{"from": "pods", "namespace": "namespaces", "node": "nodes"} {
			if cmd.Flags().Lookup(name) != nil && cmd.Flags().Lookup("kubeconfig") != nil {
				complete := c.complete(resource)
				_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
					return complete(cmd, nil, typed)
				})
			}
		}
	})
}

// complete lets shells complete the first argument with names of the cluster that the flags choose, each after the prefix of its
// resource, as in svc/services, or with the zones of nodes. Without an answer in time they get nothing.
func (c connector) complete(resources ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (words []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second) // since a shell waits for it
		defer cancel()
		flag := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
		chosen := clusterFlags{kubeconfig: flag("kubeconfig"), context: flag("context"), as: flag("as")}
		if cmd.Flags().Lookup("namespace") != nil {
			chosen.namespace = flag("namespace")
		}
		cluster, err := c(&chosen)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, resource := range resources {
			prefix, resource := path.Split(resource)
			of, namespace, nameOf := corev1.SchemeGroupVersion, cluster.namespace, (*metav1.PartialObjectMetadata).GetName
			switch resource {
			case "namespaces", "nodes":
				namespace = metav1.NamespaceAll
			case "zones":
				resource, namespace = "nodes", metav1.NamespaceAll
				nameOf = func(node *metav1.PartialObjectMetadata) string { return node.Labels[topology.Zone] }
			case shiftResource:
				of, namespace = v1alpha1.GroupVersion, metav1.NamespaceAll
			}
			list, err := cluster.metadata.Resource(of.WithResource(resource)).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
			for i := 0; err == nil && i < len(list.Items); i++ {
				word := prefix + nameOf(&list.Items[i])
				if word != "" && strings.HasPrefix(word, typed) && !slices.Contains(words, word) {
					words = append(words, word)
				}
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
