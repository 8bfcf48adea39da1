package cluster

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const kindGroupList = "EndpointGroupList"

// listGroups lists groups, and reads them while the API server writes them: the client
// library begins when it has all of them.
func listGroups(ctx context.Context, c rest.Interface, options metav1.ListOptions) (runtime.Object, error) {
	body, err := c.Get().Resource(ResourceGroups).VersionedParams(&options, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	list, err := readGroupList(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("reading a list of EndpointGroups: %w", err)
	}
	return list, nil
}

// readGroupList reads a list of groups.
func readGroupList(from io.Reader) (*v1alpha1.EndpointGroupList, error) {
	d := json.NewDecoderCaseSensitivePreserveInts(from)
	list := &v1alpha1.EndpointGroupList{}
	var version, kind string
	fields := map[string]any{"apiVersion": &version, "kind": &kind, "metadata": &list.ListMeta}
	if err := expect(d, stdjson.Delim('{')); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // there is no other
		into, known := fields[name]
		switch {
		case name == "items":
			list.Items, err = readItems(d)
		case known:
			err = d.Decode(into)
		default:
			err = d.Decode(&ignored{})
		}
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
	}
	if err := expect(d, stdjson.Delim('}')); err != nil {
		return nil, err
	}
	if more, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("behind the list comes %v (%w)", more, err)
	}
	if version != v1alpha1.GroupVersion.String() || kind != kindGroupList {
		return nil, fmt.Errorf("it is a %q of %q; want a %s of %s", kind, version, kindGroupList, v1alpha1.GroupVersion)
	}
	return list, nil
}

// readItems reads the groups of a list.
func readItems(d json.Decoder) ([]v1alpha1.EndpointGroup, error) {
	if first, err := d.Token(); err != nil || first == nil {
		return nil, err
	} else if first != stdjson.Delim('[') {
		return nil, fmt.Errorf("%v where a list begins", first)
	}
	var items []v1alpha1.EndpointGroup
	for d.More() {
		var read sentGroup
		if err := d.Decode(&read); err != nil {
			return nil, err
		}
		items = append(items, read.group())
	}
	return items, expect(d, stdjson.Delim(']'))
}

// expect reads the one token that may come.
func expect(d json.Decoder, want stdjson.Delim) error {
	got, err := d.Token()
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%v where there should be %v", got, want)
	}
	return nil
}
