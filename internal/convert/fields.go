package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fields are those of a part of an object. What was read is taken out, so that what is left is
// not known.
type fields struct {
	path   string // in front of their names
	values map[string]json.RawMessage
}

// take reads a field, and reports whether it is given. allowed says what it must be.
func (f fields) take(name string, into any, allowed string) (bool, error) {
	raw, found := f.values[name]
	delete(f.values, name)
	if !found || string(raw) == "null" {
		return false, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return false, f.refused(name, raw, allowed)
	}
	return true, nil
}

// refused says which value of a field is not allowed, and what is.
func (f fields) refused(name string, value json.RawMessage, allowed string) error {
	text := string(value)
	const longest = 200 // runes of a value that are shown
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "…"
	}
	return fmt.Errorf("%s%s: %s is not allowed; it must be %s", f.path, name, strings.Join(strings.Fields(text), " "), allowed)
}

// unread refuses fields that were not taken: what they mean would be lost.
func (f fields) unread(kind string) error {
	if len(f.values) == 0 {
		return nil
	}
	var names []string
	for name := range f.values {
		names = append(names, strconv.Quote(name))
	}
	slices.Sort(names)
	return fmt.Errorf("spec has %s, which is no field of a %s that is known here, so its meaning would be lost; remove it", strings.Join(names, " and "), kind)
}

const amountAllowed = "a number from 0, or a percentage from \"0%\" to \"100%\""

// amount reads a number of pods or a percentage of them.
func (f fields) amount(name string) (*intstr.IntOrString, error) {
	raw := f.values[name]
	var value intstr.IntOrString
	given, err := f.take(name, &value, amountAllowed)
	if err != nil || !given {
		return nil, err
	}
	if value.Type == intstr.Int && value.IntVal < 0 || value.Type == intstr.String && !percentage.MatchString(value.StrVal) {
		return nil, f.refused(name, raw, amountAllowed)
	}
	return &value, nil
}

// percentage is one as the API takes it.
var percentage = regexp.MustCompile(`^([0-9]{1,2}|100)%$`)

// selector reads a selector of labels. It is nil if none is given.
func (f fields) selector() (*metav1.LabelSelector, error) {
	const allowed = "a selector with matchLabels and matchExpressions"
	raw := f.values["selector"]
	var selector metav1.LabelSelector
	given, err := f.take("selector", &selector, allowed)
	if err != nil || !given {
		return nil, err
	}
	if err := onlyKnown(raw, &metav1.LabelSelector{}); err != nil {
		return nil, fmt.Errorf("%w: %w", f.refused("selector", raw, allowed), err)
	}
	if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		return nil, fmt.Errorf("%w: %w", f.refused("selector", raw, allowed+" that are valid"), err)
	}
	return &selector, nil
}

// onlyKnown refuses fields that a type does not have.
func onlyKnown(raw json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func isEmpty(selector *metav1.LabelSelector) bool {
	return len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}
