package console

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
)

var functions = template.FuncMap{
	"percent":   percent,
	"rate":      func(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', 1, 64) + " connections/s" },
	"zone":      explain.ZoneName,
	"when":      when,
	"handOver":  handOver,
	"count":     func(n int, one, many string) string { return plaintext.Count(int64(n), one, many) },
	"join":      strings.Join,
	"list":      func(of ...string) []string { return of },
	"path":      servicePath,
	"trim":      func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) },
	"bar":       bar,
	"few":       func(names []string) string { return plaintext.FirstOf(names, fewShown) },
	"blocking":  func(c string) string { return conditions[c] },
	"proxy":     func(p inspect.ProxyState) string { return proxyStates[p] },
	"sameText":  func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) },
	"nav":       func() []navEntry { return navigation },
	"stateWord": func(state string) string { return cmp.Or(state, "nothing asked for") },
}

type navEntry struct{ Name, Title, Path string }

var navigation = []navEntry{
	{"cluster", "Cluster", pathCluster},
	{"services", "Services", pathServices},
	{"names", "Names", pathNames},
	{"disruption", "Disruption", pathDisruption},
	{"whatif", "What if", pathWhatIf},
}

// percent formats a percentage, with a dash if it is unknown.
func percent(value any) string {
	switch v := value.(type) {
	case *float64:
		if v == nil {
			return "–"
		}
		return percent(*v)
	case float64:
		if v > 0 && v < 0.1 {
			return "<0.1 %"
		}
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " %"
	}
	return "–"
}

func when(at any) template.HTML {
	var t time.Time
	switch given := at.(type) {
	case time.Time:
		t = given
	case *time.Time:
		if given != nil {
			t = *given
		}
	case string: // the format of explain
		var err error
		if t, err = time.Parse(time.RFC3339, given); err != nil {
			return template.HTML(template.HTMLEscapeString(given))
		}
	}
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	// The layouts have no characters that mean something in HTML.
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `">` + t.Format("2006-01-02 15:04:05") + ` UTC</time>`)
}

func handOver(state inspect.HandOverState) string {
	switch state {
	case inspect.HandOverNone:
		return "kube-proxy"
	case inspect.HandOverWriting:
		return "kube-proxy, until groups are written"
	case inspect.HandOverWaiting:
		return "kube-proxy, until all nodes are ready"
	case inspect.HandOverDone:
		return "vicinity-proxy"
	case inspect.HandOverReturning:
		return "vicinity-proxy, on the way back to kube-proxy"
	}
	return "neither kube-proxy nor vicinity-proxy"
}

// conditions describe a condition that is not as it should be.
var conditions = map[string]string{
	v1alpha1.ConditionEnforced:          "evictions are not checked",
	v1alpha1.ConditionValid:             "the spec is invalid",
	v1alpha1.ConditionSatisfiable:       "it can never be satisfied, or covers no pod",
	v1alpha1.ConditionBreakGlass:        "every eviction is allowed",
	v1alpha1.ConditionDisruptionAllowed: "no pod can be evicted",
	v1alpha1.ConditionDeletesDirectly:   "a controller deletes pods without evictions",
	v1alpha1.ConditionProjected:         "it has no PodDisruptionBudget",
	v1alpha1.ConditionHealthy:           "it is not healthy",
}

var proxyStates = map[inspect.ProxyState]string{
	inspect.ProxyLives: "vicinity-proxy runs", inspect.ProxySilent: "vicinity-proxy does not renew its Lease",
	inspect.ProxyNone: "no vicinity-proxy", inspect.ProxyUnknown: "not known",
}

func servicePath(namespace, name string) string { return pathServices + "/" + namespace + "/" + name }

// bar returns the width of a bar for a percentage.
func bar(value any) string {
	v := 0.0
	switch given := value.(type) {
	case *float64:
		if given != nil {
			v = *given
		}
	case float64:
		v = given
	}
	return strconv.FormatFloat(min(100, max(0, v)), 'f', 1, 64)
}

// fewShown limits the names of a list.
const fewShown = 10

func cutName(name string) (namespace, short string, qualified bool) {
	namespace, short, qualified = strings.Cut(name, "/")
	return namespace, short, qualified && namespace != "" && short != "" && !strings.Contains(short, "/")
}

// Deliveries are the choices of a filter.
func (*servicesView) Deliveries() []allocate.Delivery { return deliveries }

// States are the choices of a filter.
func (v *servicesView) States() []string {
	states := []string{"allocated", "waiting", "downgraded", "delivered", "planned", "undelivered", "upstream", "shifted", "unknown"}
	if v.Query.State != "" && !slices.Contains(states, v.Query.State) {
		states = append(states, v.Query.State)
	}
	return states
}
