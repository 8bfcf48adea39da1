package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// The kind of configuration files, and the version that is understood.
const (
	fileVersion = "proxy.config.vicinity.dev/v1alpha1"
	fileKind    = "ProxyConfiguration"
)

// fieldOf is the name that a flag's setting has in files.
func fieldOf(flag string) string {
	var b strings.Builder
	for i, word := range strings.Split(flag, "-") {
		switch {
		case word == "ips":
			word = "IPs"
		case word == "cidr" || word == "tcp" || word == "udp":
			word = strings.ToUpper(word)
		case word == "nodeport":
			word = "nodePort"
		case i > 0:
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		b.WriteString(word)
	}
	return b.String()
}

// load gives flags what a file says, but for those that the command line has. It returns
// the names of those that the file has set.
func load(path string, flags *pflag.FlagSet) (set map[string]bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(converted, &fields); err != nil {
		return nil, fmt.Errorf("%s: it must be a map of settings", path)
	}
	for _, head := range []struct{ field, want string }{{"apiVersion", fileVersion}, {"kind", fileKind}} {
		var got string
		if given := fields[head.field]; given != nil && json.Unmarshal(given, &got) != nil || got != head.want {
			return nil, fmt.Errorf("%s: %s: %q is not understood; it must be %s", path, head.field, got, head.want)
		}
		delete(fields, head.field)
	}
	known := map[string]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) { known[fieldOf(f.Name)] = f })
	set = map[string]bool{}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		f := known[field]
		if f == nil {
			return nil, fmt.Errorf("%s: %s: there is no such setting; there are %s", path, field, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if err := give(f, fields[field]); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, field, err)
		}
		set[f.Name] = !f.Changed
	}
	return set, nil
}

// give gives a flag the value of its setting, unless the command line has it.
func give(f *pflag.Flag, value json.RawMessage) error {
	into, want := any(new(string)), "a text"
	switch f.Value.Type() {
	case "bool":
		into, want = new(bool), "true or false"
	case "int":
		into, want = new(int), "a whole number"
	case "duration":
		want = "a time such as 10s"
	case "stringSlice":
		into, want = new([]string), "a list of texts"
	}
	wrong := fmt.Errorf("%s is not allowed; it must be %s", value, want)
	if string(value) == "null" || json.Unmarshal(value, into) != nil {
		return wrong
	}
	if f.Changed {
		return nil
	}
	if list, many := into.(*[]string); many {
		slice, ok := f.Value.(pflag.SliceValue)
		if !ok {
			return errors.New("it cannot be set")
		}
		return slice.Replace(*list)
	}
	var text string
	switch given := into.(type) {
	case *string:
		text = *given
	case *bool:
		text = fmt.Sprint(*given)
	case *int:
		text = fmt.Sprint(*given)
	}
	if f.Value.Set(text) != nil {
		return wrong
	}
	return nil
}
