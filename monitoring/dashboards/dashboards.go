// Package dashboards has the dashboards for Grafana: which question each answers, by which
// queries, and how that looks. It does not say what is recorded or when somebody has to
// look, which is in package rules.
//
// A dashboard is a list of rows of panels; the builders of Grafana's SDK make JSON of it,
// which the tests of this package write and the chart installs.
package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Dashboard is one of them.
type Dashboard struct {
	// UID is also the name of its file.
	UID, Title string
	// Description is the question that it answers.
	Description string
	Variables   []Variable
	Rows        []Row
}

// Row is a line of panels with a title, which together are as wide as the page.
type Row struct {
	Title  string
	Panels []Panel
}

// Variable is what its reader chooses.
type Variable struct {
	Name, Label, Description string
	// Query lists what there is to choose, as Grafana's functions of Prometheus do. Without
	// one, the reader writes a value.
	Query string
	// Default is what is written at first.
	Default string
	// All lets the reader choose all, or several.
	All bool
}

// All are all dashboards.
func All() []Dashboard {
	return []Dashboard{cluster(), service(), proxy(), dns(), disruption()}
}

const (
	tag = "vicinity"
	// datasource is the variable that has the Prometheus.
	datasource = "datasource"
	// width is that of the page.
	width = 24
)

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${" + datasource + "}")}
}

// JSON is the dashboard as Grafana reads it.
func (d Dashboard) JSON() ([]byte, error) {
	built, err := d.build()
	if err != nil {
		return nil, fmt.Errorf("building the dashboard %s: %w", d.UID, err)
	}
	text, err := json.MarshalIndent(built, "", " ")
	return append(text, '\n'), err
}

func (d Dashboard) build() (dashboard.Dashboard, error) {
	b := dashboard.NewDashboardBuilder(d.Title).Uid(d.UID).Description(d.Description).Tags([]string{tag}).
		Time("now-3h", "now").Refresh("1m").Timezone("browser").Editable().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Vicinity").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).AsDropdown(true).KeepTime(true).IncludeVars(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder(datasource).Label("Prometheus").Type("prometheus").
			Description("The Prometheus that scrapes Vicinity and has its recording rules."))
	for _, v := range d.Variables {
		b.WithVariable(v.build())
	}
	id := uint32(0)
	y := uint32(0)
	for _, row := range d.Rows {
		id++
		b.WithRow(dashboard.NewRowBuilder(row.Title).Id(id).GridPos(dashboard.GridPos{X: 0, Y: y, W: width, H: 1}))
		y++
		x, height := uint32(0), uint32(0)
		for _, p := range row.Panels {
			// The next line of the row.
			if x+p.Width > width {
				x, y, height = 0, y+height, 0
			}
			id++
			panel, err := p.build(id, dashboard.GridPos{X: x, Y: y, W: p.Width, H: p.Height})
			if err != nil {
				return dashboard.Dashboard{}, fmt.Errorf("panel %q: %w", p.Title, err)
			}
			b.WithPanel(panel)
			x += p.Width
			height = max(height, p.Height)
		}
		y += height
	}
	return b.Build()
}

func (v Variable) build() cog.Builder[dashboard.VariableModel] {
	if v.Query == "" {
		return dashboard.NewTextBoxVariableBuilder(v.Name).Label(v.Label).Description(v.Description).
			DefaultValue(dashboard.StringOrMap{String: &v.Default})
	}
	b := dashboard.NewQueryVariableBuilder(v.Name).Label(v.Label).Description(v.Description).Datasource(source()).
		Query(dashboard.StringOrMap{String: &v.Query}).Definition(v.Query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
	if v.All {
		all := dashboard.StringOrArrayOfString{String: cog.ToPtr("All")}
		b.IncludeAll(true).AllValue(".*").Multi(true).
			Current(dashboard.VariableOption{Selected: cog.ToPtr(true), Text: all, Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")}})
	}
	return b
}
