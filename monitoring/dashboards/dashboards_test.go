package dashboards_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"

	"vicinity.dev/vicinity/monitoring/catalog"
	"vicinity.dev/vicinity/monitoring/dashboards"
	"vicinity.dev/vicinity/monitoring/rules"
)

// update has the tests write what they would compare: "make generate".
var update = flag.Bool("update", false, "write the dashboards of the chart anew")

const folder = "../../charts/vicinity/monitoring/dashboards"

func fileOf(d dashboards.Dashboard) string { return filepath.Join(folder, d.UID+".json") }

func TestFilesOfTheChartAreCurrent(t *testing.T) {
	want := map[string]bool{}
	for _, d := range dashboards.All() {
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		file := fileOf(d)
		want[file] = true
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if has, err := os.ReadFile(file); err != nil || !bytes.Equal(has, text) {
			t.Errorf("%s is not what the code makes of it (%v): make generate writes it anew", file, err)
		}
	}
	has, err := filepath.Glob(folder + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range has {
		if !want[file] {
			t.Errorf("%s is no dashboard of the code: delete it", file)
		}
	}
}

// read reads the file of a dashboard as Grafana's schema has it. A field that the schema does
// not know fails the test, but those of datasources and panels, which the SDK reads loosely.
func read(t *testing.T, d dashboards.Dashboard) dashboard.Dashboard {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(fileOf(d))
	if err != nil {
		t.Fatal(err)
	}
	// The SDK returns an empty list of errors where there are none, and then does not keep panels.
	var problems cog.BuildErrors
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(text); !errors.As(err, &problems) || len(problems) > 0 {
		t.Fatalf("%s does not follow the schema: %v", d.UID, err)
	}
	var found dashboard.Dashboard
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	if err := found.Validate(); err != nil {
		t.Fatalf("%s is not valid: %v", d.UID, err)
	}
	return found
}

func TestDashboardsFollowTheSchema(t *testing.T) {
	uids := map[string]bool{}
	for _, d := range dashboards.All() {
		found := read(t, d)
		if *found.Uid != d.UID || uids[d.UID] || *found.Title != d.Title || *found.Description == "" {
			t.Errorf("%s has the UID %s, the title %q and the description %q, or is there twice", d.UID, *found.Uid, *found.Title, *found.Description)
		}
		uids[d.UID] = true
	}
}

const pageWidth = 24

// Panels lie beside each other and say what they show.
func TestLayout(t *testing.T) {
	for _, d := range dashboards.All() {
		taken := map[[2]uint32]string{}
		ids := map[uint32]bool{}
		titles := map[string]bool{}
		place := func(title string, id uint32, at *dashboard.GridPos) {
			if at == nil || at.W == 0 || at.H == 0 || at.X+at.W > pageWidth {
				t.Fatalf("%s: %q is not on the page: %+v", d.UID, title, at)
			}
			if ids[id] {
				t.Errorf("%s: %q has the ID %d of another panel", d.UID, title, id)
			}
			ids[id] = true
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					if other := taken[[2]uint32{x, y}]; other != "" {
						t.Fatalf("%s: %q lies over %q", d.UID, title, other)
					}
					taken[[2]uint32{x, y}] = title
				}
			}
		}
		for _, p := range read(t, d).Panels {
			if p.RowPanel != nil {
				place(*p.RowPanel.Title, p.RowPanel.Id, p.RowPanel.GridPos)
				continue
			}
			title := *p.Panel.Title
			place(title, *p.Panel.Id, p.Panel.GridPos)
			switch {
			case titles[title] && p.Panel.Type != "timeseries":
				t.Errorf("%s: two panels are named %q", d.UID, title)
			case p.Panel.Description == nil || !strings.HasSuffix(*p.Panel.Description, "."):
				t.Errorf("%s: %q says nothing, or no sentence, about itself", d.UID, title)
			case p.Panel.FieldConfig == nil || p.Panel.FieldConfig.Defaults.Unit == nil || *p.Panel.FieldConfig.Defaults.Unit == "":
				t.Errorf("%s: %q has no unit", d.UID, title)
			case len(p.Panel.Targets) == 0:
				t.Errorf("%s: %q asks nothing", d.UID, title)
			}
			titles[title] = true
		}
	}
}

// What panels ask for is there, and none has data whatever there is.
func TestQueriesAskForWhatThereIs(t *testing.T) {
	c, err := catalog.Read("../../docs/reference")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules.Recordings() {
		c.Add(r.Name, r.Labels)
	}
	found := 0
	for _, d := range dashboards.All() {
		for _, p := range read(t, d).Panels {
			if p.RowPanel != nil {
				continue
			}
			for _, target := range p.Panel.Targets {
				query, ok := target.(*prometheus.Dataquery)
				if !ok {
					t.Fatalf("%s: a query of %q is a %T", d.UID, *p.Panel.Title, target)
				}
				found++
				for _, problem := range c.Problems(query.Expr) {
					t.Errorf("%s: %q: %s", d.UID, *p.Panel.Title, problem)
				}
				if strings.Contains(query.Expr, "vector(") {
					t.Errorf("%s: %q makes data of nothing: %s", d.UID, *p.Panel.Title, query.Expr)
				}
			}
		}
		for _, v := range d.Variables {
			if v.Query == "" {
				continue
			}
			selector, _, _ := strings.Cut(strings.TrimPrefix(v.Query, "label_values("), "}")
			if strings.Contains(v.Query, "}") {
				selector += "}"
			} else {
				selector, _, _ = strings.Cut(selector, ",")
			}
			for _, problem := range c.Problems(selector) {
				t.Errorf("%s: variable %s: %s", d.UID, v.Name, problem)
			}
		}
	}
	if found < 100 {
		t.Errorf("there are %d queries", found)
	}
}
