package dashboards

import (
	"errors"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Kind is how a panel looks.
type Kind int

// The kinds.
const (
	// Graph shows values over time.
	Graph Kind = iota
	// Stacked is a Graph whose values add up.
	Stacked
	// Number shows one value now, or few.
	Number
	// Bars shows values now, the greatest longest.
	Bars
	// Table has a line for each value now, by its labels, the greatest first.
	Table
	// Matrix is a table of values now by two labels.
	Matrix
)

// Panel is one picture.
type Panel struct {
	Title string
	// Description says what is shown, where it comes from, and what to make of it.
	Description string
	Kind        Kind
	Unit        string
	Queries     []Query
	// Rows and Columns are the labels of a Matrix.
	Rows, Columns string
	// Steps are values from which on a color applies, in rising order; the first is the base.
	Steps         []Step
	Width, Height uint32
	// Max is the greatest value that there can be, if it is known.
	Max float64
	// LeastFirst turns a Table round.
	LeastFirst bool
}

// Query is PromQL with a name for what it finds.
type Query struct {
	Expr string
	// Legend has labels in braces; that of a Table heads the values.
	Legend string
}

// Step is a value with its color.
type Step struct {
	From  float64
	Color string
}

const (
	green  = "green"
	yellow = "yellow"
	red    = "red"
)

// bad colors what should be 0.
var bad = []Step{{Color: green}, {From: 1, Color: red}}

// share colors what should be near to 1.
var share = []Step{{Color: red}, {From: 0.5, Color: yellow}, {From: 0.8, Color: green}}

// overload colors what should be below the threshold that plans have.
var overload = []Step{{Color: green}, {From: 0.5, Color: yellow}, {From: 1, Color: red}}

func (p Panel) thresholds() *dashboard.ThresholdsConfigBuilder {
	steps := p.Steps
	if len(steps) == 0 {
		steps = []Step{{Color: green}}
	}
	var made []dashboard.Threshold
	for i, s := range steps {
		t := dashboard.Threshold{Color: s.Color}
		if i > 0 {
			t.Value = &s.From
		}
		made = append(made, t)
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(made)
}

// targets are the queries. What shows values now asks once: of the whole time, the last value
// would be shown also where there is none any more.
func (p Panel) targets() []cog.Builder[variants.Dataquery] {
	var made []cog.Builder[variants.Dataquery]
	for i, q := range p.Queries {
		b := prometheus.NewDataqueryBuilder().Expr(q.Expr).LegendFormat(q.Legend).RefId(string(rune('A' + i))).Datasource(source())
		switch p.Kind {
		case Table, Matrix:
			b.Format(prometheus.PromQueryFormatTable).Instant()
		case Number, Bars:
			b.Instant()
		default:
			b.Range()
		}
		made = append(made, b)
	}
	return made
}

// serviceLink leads from the name of a Service to its dashboard.
var serviceLink = []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]any{{
	"title": "Service",
	"url":   "/d/" + serviceUID + "?${" + datasource + ":queryparam}&var-namespace=${__data.fields.namespace}&var-service=${__data.fields.service}",
}}}}

func (p Panel) build(id uint32, at dashboard.GridPos) (cog.Builder[dashboard.Panel], error) {
	switch p.Kind {
	case Graph, Stacked:
		return p.graph(id, at), nil
	case Number:
		b := stat.NewPanelBuilder().Id(id).GridPos(at).Title(p.Title).Description(p.Description).Unit(p.Unit).Datasource(source()).
			Thresholds(p.thresholds()).Targets(p.targets()).ReduceOptions(last()).GraphMode(common.BigValueGraphModeNone)
		if p.Max > 0 {
			b.Max(p.Max)
		}
		return b, nil
	case Bars:
		b := bargauge.NewPanelBuilder().Id(id).GridPos(at).Title(p.Title).Description(p.Description).Unit(p.Unit).Datasource(source()).
			Thresholds(p.thresholds()).Targets(p.targets()).ReduceOptions(last()).Min(0).
			Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic)
		if p.Max > 0 {
			b.Max(p.Max)
		}
		return b, nil
	case Table, Matrix:
		return p.table(id, at), nil
	}
	return nil, errors.New("its kind is unknown")
}

func last() *common.ReduceDataOptionsBuilder {
	return common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})
}

func (p Panel) graph(id uint32, at dashboard.GridPos) *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().Id(id).GridPos(at).Title(p.Title).Description(p.Description).Unit(p.Unit).Datasource(source()).
		Targets(p.targets()).Min(0).Thresholds(p.thresholds()).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.Max > 0 {
		b.Max(p.Max)
	}
	if p.Kind == Stacked {
		b.FillOpacity(30).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	return b
}

func (p Panel) table(id uint32, at dashboard.GridPos) *table.PanelBuilder {
	b := table.NewPanelBuilder().Id(id).GridPos(at).Title(p.Title).Description(p.Description).Unit(p.Unit).Datasource(source()).
		Thresholds(p.thresholds()).Targets(p.targets()).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"}))
	if p.Max > 0 {
		b.Max(p.Max)
	}
	if p.Kind == Matrix {
		return b.WithTransformation(dashboard.DataTransformerConfig{Id: "groupingToMatrix", Options: map[string]any{
			"rowField": p.Rows, "columnField": p.Columns, "valueField": "Value",
		}})
	}
	// Transformations see the name that the query gives, before it is replaced for display.
	shown := []dashboard.DynamicConfigValue{{Id: "displayName", Value: p.Queries[0].Legend}}
	if len(p.Steps) > 0 {
		shown = append(shown, dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}})
	}
	return b.OverrideByName("service", serviceLink).OverrideByName("Value", shown).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{"excludeByName": map[string]bool{"Time": true}}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "sortBy", Options: map[string]any{
			"sort": []map[string]any{{"field": "Value", "desc": !p.LeastFirst}},
		}})
}
