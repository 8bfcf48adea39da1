package cli

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kit/command"
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
// resource, as in svc/services. Without an answer in time they get nothing.
func (c connector) complete(resources ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (words []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second) // since a shell waits for it
		defer cancel()
		flag := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
		cluster, err := c(&clusterFlags{kubeconfig: flag("kubeconfig"), context: flag("context"), namespace: flag("namespace"), as: flag("as")})
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, resource := range resources {
			prefix, resource := path.Split(resource)
			namespace := cluster.namespace
			if resource == "namespaces" || resource == "nodes" {
				namespace = metav1.NamespaceAll
			}
			list, err := cluster.metadata.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
			for i := 0; err == nil && i < len(list.Items); i++ {
				if word := prefix + list.Items[i].Name; strings.HasPrefix(word, typed) {
					words = append(words, word)
				}
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
