package commands

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"vicinity.dev/vicinity/internal/cli/manifest"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

func newLabApplyCommand(s command.Streams, f *labFlags) *cobra.Command {
	var files []string
	var namespace string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Apply your own manifests in a lab",
		Long: `Apply applies manifests that were written for another cluster, and says what runs in a lab in
place of images that it cannot pull. lab/echo answers HTTP on the first TCP port of a container.
Without a port, lab/sleep does nothing. Init containers and volumes of such pods are left out.
If a pod should end, as that of a Job, it applies nothing.`,
		Example: `  vicinity lab apply -f shop.yaml
  helm template shop | vicinity lab apply -f -`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var objects []*unstructured.Unstructured
			keep := func(read manifest.Object) error {
				o := &unstructured.Unstructured{}
				err := json.Unmarshal(read.JSON, &o.Object)
				o.SetGroupVersionKind(read.Kind)
				objects = append(objects, o)
				return err
			}
			err := manifest.ReadFiles(cmd.Context(), s.In, files, func(name string, from io.Reader) error { return manifest.Walk(name, from, keep) })
			if err != nil {
				return err
			}
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			instead, err := cluster.ApplyForeign(cmd.Context(), namespace, objects)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.Out, strings.Join(append(instead, plaintext.Plural(len(objects), "object")+" applied"), "\n"))
			return err
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "`FILE` or directory of manifests, or - for standard input; can be repeated")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "`NAMESPACE` of objects that name none")
	return cmd
}
