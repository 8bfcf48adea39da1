package translate

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/internal/allocate"
)

// Limits of what a policy may say, as in its schema.
const (
	maxPadding   = 1000
	maxEndpoints = 1_000_000
)

var (
	percentage = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,2})?%$`)
	perZone    = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,2})?x$`)
	digits     = regexp.MustCompile(`^[0-9]+$`)
)

func parseThreshold(text string) (float64, error) {
	if percentage.MatchString(text) {
		n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err == nil && n > 0 && n <= 1000 {
			return n / 100, nil
		}
	}
	return 0, errors.New(`it must be a percentage above 0 and at most 1000, such as "50%"`)
}

func parseStart(value intstr.IntOrString) (allocate.Start, error) {
	switch {
	case value.Type == intstr.Int:
		if value.IntVal >= 0 && value.IntVal <= maxEndpoints {
			return allocate.Start{Endpoints: int(value.IntVal)}, nil
		}
	case perZone.MatchString(value.StrVal):
		if n, err := strconv.ParseFloat(strings.TrimSuffix(value.StrVal, "x"), 64); err == nil {
			return allocate.Start{PerZone: n}, nil
		}
	case digits.MatchString(value.StrVal):
		return allocate.Start{}, fmt.Errorf(`it must be a number, which is written without quotes: %s, or one for each zone, such as "3x"`, value.StrVal)
	}
	return allocate.Start{}, fmt.Errorf(`it must be a number of endpoints from 0 to %d, such as 12, or one for each zone, such as "3x"`, maxEndpoints)
}

// quoted is a value as in its manifest.
func quoted(value intstr.IntOrString) string {
	if value.Type == intstr.Int {
		return value.String()
	}
	return strconv.Quote(value.StrVal)
}
