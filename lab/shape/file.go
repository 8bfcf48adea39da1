package shape

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"sigs.k8s.io/yaml"
)

// Read reads a shape from YAML or JSON, completes and validates it. The name is the default for a
// shape without one.
//
// A zone has a list of nodes or their number. Its cpu, memory, pods and labels are defaults for
// its nodes:
//
//	zones:
//	- name: a
//	  region: west
//	  cpu: "8"
//	  nodes: 3
//	- name: b
//	  nodes:
//	  - labels: {example.com/rack: r1}
//	  - labels: {example.com/rack: r2}
func Read(r io.Reader, name string) (Shape, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Shape{}, fmt.Errorf("reading a shape: %w", err)
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return Shape{}, fmt.Errorf("reading a shape: %w", err)
	}
	var s Shape
	if err := json.Unmarshal(data, &s); err != nil {
		return Shape{}, fmt.Errorf("reading a shape: %w", err)
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(data, &named); err != nil {
		return Shape{}, fmt.Errorf("reading a shape: %w", err)
	}
	if named.Name == "" && name != "" {
		s.Name = name
	}
	if err := s.Validate(); err != nil {
		return Shape{}, fmt.Errorf("reading a shape: %w", err)
	}
	return s, nil
}

// UnmarshalJSON reads a shape and completes it. Unknown fields are errors.
func (s *Shape) UnmarshalJSON(data []byte) error {
	// A type without this method, which would recurse.
	type plain Shape
	var read plain
	if err := decodeStrictly(data, &read); err != nil {
		return err
	}
	*s = Shape(read)
	s.complete()
	return nil
}

// UnmarshalJSON reads a zone in its long or short form. Unknown fields are errors.
func (z *Zone) UnmarshalJSON(data []byte) error {
	var read struct {
		Name   string            `json:"name"`
		Region string            `json:"region"`
		CPU    string            `json:"cpu"`
		Memory string            `json:"memory"`
		Pods   int               `json:"pods"`
		Labels map[string]string `json:"labels"`
		Nodes  json.RawMessage   `json:"nodes"`
	}
	if err := decodeStrictly(data, &read); err != nil {
		return err
	}
	nodes, err := readNodes(read.Nodes)
	if err != nil {
		return fmt.Errorf("zone %q: %w", read.Name, err)
	}
	for i := range nodes {
		node := &nodes[i]
		node.CPU, node.Memory, node.Pods = cmp.Or(node.CPU, read.CPU), cmp.Or(node.Memory, read.Memory), cmp.Or(node.Pods, read.Pods)
		if len(read.Labels) > 0 {
			labels := maps.Clone(read.Labels)
			maps.Copy(labels, node.Labels)
			node.Labels = labels
		}
	}
	*z = Zone{Name: read.Name, Region: read.Region, Nodes: nodes}
	return nil
}

func readNodes(data json.RawMessage) ([]Node, error) {
	switch {
	case len(data) == 0 || string(data) == "null":
		return make([]Node, defaultNodesPerZone), nil
	case data[0] == '[':
		var nodes []Node
		if err := decodeStrictly(data, &nodes); err != nil {
			return nil, err
		}
		return nodes, nil
	}
	var count int
	if err := json.Unmarshal(data, &count); err != nil || count < 0 || count > maxNodes {
		return nil, fmt.Errorf("nodes %s: write a list, or a number from 0 to %d", data, maxNodes)
	}
	return make([]Node, count), nil
}

// decodeStrictly decodes a value and refuses unknown fields. It rewrites an error about a wrong
// type for users.
func decodeStrictly(data []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(value)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return fmt.Errorf("field %q holds a %s: write a %s", wrongType.Field, wrongType.Value, wrongType.Type)
	}
	return err
}
