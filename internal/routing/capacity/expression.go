package capacity

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/intent"
)

const (
	// expressionCost is the greatest cost of an expression for one zone, in the units of CEL. A sum of all fields costs
	// about a dozen.
	expressionCost = 10_000
	// maxExpression is the greatest length of an expression, in characters.
	maxExpression = 1024
	// maxCapacity is the greatest capacity of a zone.
	maxCapacity = 1e15
	// longestName is the greatest length of a zone or region, in characters.
	longestName = 63
)

// Check returns an error for an expression that is invalid for any zones: it must be CEL, give a number, and not cost
// too much.
func Check(expression string) error {
	_, err := compile(expression)
	return err
}

var language = sync.OnceValues(func() (*cel.Env, error) {
	zone := reflect.TypeFor[intent.Zone]()
	return cel.NewEnv(
		ext.NativeTypes(zone, ext.ParseStructTags(true)),
		ext.Math(),
		cel.Variable("zone", cel.ObjectType(zone.String())),
	)
})

func compile(expression string) (cel.Program, error) {
	if strings.TrimSpace(expression) == "" {
		return nil, errors.New("it is empty")
	}
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("it has %d characters; at most %d are allowed", len(expression), maxExpression)
	}
	env, err := language()
	if err != nil {
		return nil, fmt.Errorf("preparing CEL: %w", err)
	}
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, languageError(issues)
	}
	if out := ast.OutputType(); !out.IsExactType(cel.DoubleType) && !out.IsExactType(cel.IntType) && !out.IsExactType(cel.UintType) {
		return nil, fmt.Errorf("it gives a %s; it must give a number", strings.ToLower(strings.TrimPrefix(out.String(), "intent.")))
	}
	cost, err := env.EstimateCost(ast, names{})
	if err != nil {
		return nil, fmt.Errorf("estimating its cost: %w", err)
	}
	if cost.Max > expressionCost {
		return nil, fmt.Errorf("it may cost %d; at most %d is allowed", cost.Max, expressionCost)
	}
	program, err := env.Program(ast, cel.CostLimit(expressionCost))
	if err != nil {
		return nil, err
	}
	return program, nil
}

// languageError returns the first error of CEL, on one line.
func languageError(issues *cel.Issues) error {
	first := issues.Errors()[0]
	message := plaintext.Of(strings.Join(strings.Fields(first.Message), " ")) // it quotes the expression
	if strings.Contains(message, "no matching overload") {
		message += "; fields of zone are decimal, so write 2.0 rather than 2"
	}
	return fmt.Errorf("column %d: %s", first.Location.Column()+1, message)
}

// names gives the cost estimate the lengths of strings.
type names struct{}

func (names) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if element.Type().IsExactType(types.StringType) && len(element.Path()) > 1 {
		return &checker.SizeEstimate{Max: longestName}
	}
	return nil
}

func (names) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// Evaluate computes the capacity of each zone.
func Evaluate(expression string, zones []intent.Zone) (map[string]float64, error) {
	program, err := compile(expression)
	if err != nil {
		return nil, err
	}
	capacities := make(map[string]float64, len(zones))
	for i := range zones {
		result, _, err := program.Eval(map[string]any{"zone": zones[i]})
		if err != nil {
			return nil, fmt.Errorf("zone %q: %s", zones[i].Name, plaintext.Of(err.Error()))
		}
		if capacities[zones[i].Name], err = number(result.Value()); err != nil {
			return nil, fmt.Errorf("zone %q: %w", zones[i].Name, err)
		}
	}
	return capacities, nil
}

func number(value any) (float64, error) {
	var n float64
	switch v := value.(type) {
	case float64:
		n = v
	case int64:
		n = float64(v)
	case uint64:
		n = float64(v)
	default:
		return 0, errors.New("the result is not a number")
	}
	if !(n >= 0 && n <= maxCapacity) || math.IsNaN(n) {
		return 0, fmt.Errorf("the result is %g; it must be from 0 to %g", n, float64(maxCapacity))
	}
	return n, nil
}
