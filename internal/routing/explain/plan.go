package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Region returns the table of a Service's zones. unit names the capacity, as in "nodes".
func Region(region allocate.Region, unit string) plaintext.Table {
	zones, names := sorted(region)
	shares, endpoints := region.Shares(names), float64(region.Endpoints())
	regional := slices.ContainsFunc(zones, func(z allocate.Zone) bool { return z.Region != "" })
	t := plaintext.NewTable("zone", ">"+unit, ">traffic %", ">endpoints", ">expected")
	if regional {
		t.Columns = slices.Insert(t.Columns, 1, plaintext.Column{Title: "region"})
	}
	for i, z := range zones {
		row := []string{
			ZoneName(z.Name), plaintext.Decimal(z.Capacity, 2), plaintext.Fixed(100*shares[i], 1),
			fmt.Sprint(z.Endpoints), plaintext.Fixed(shares[i]*endpoints, 2),
		}
		if regional {
			row = slices.Insert(row, 1, ZoneName(z.Region))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sorted returns the region's zones and their names, sorted by name.
func sorted(region allocate.Region) (zones []allocate.Zone, names []string) {
	zones = slices.Clone(region.Zones)
	slices.SortFunc(zones, func(a, b allocate.Zone) int { return strings.Compare(a.Name, b.Name) })
	for _, z := range zones {
		names = append(names, z.Name)
	}
	return zones, names
}

// Plan returns the table of the endpoints that each zone uses, and of the load of its own endpoints, where 100 % is the
// even share.
func Plan(region allocate.Region, o Option) plaintext.Table {
	plan := o.Plan
	zones, _ := sorted(region)
	shares := region.Shares(plan.Zones)
	loads := loadsOf(region, o)
	endpoints := float64(region.Endpoints())
	t := plaintext.NewTable("zone", ">traffic %", ">endpoints", ">expected", "uses", ">in-zone %", ">load %")
	for _, zone := range zones {
		z := slices.Index(plan.Zones, zone.Name)
		if z < 0 {
			continue // the plan is of another region
		}
		u := usageOf(plan, z)
		uses, inZone := u.text(plan.Zones, z, region.Endpoints()), "-"
		if zone.Name == "" {
			uses = "-" // it has no clients
		}
		if shares[z] > 0 {
			stays := u.inZone(z)
			if o.Nodes != nil {
				stays = o.Nodes.InZone[zone.Name]
			}
			inZone = plaintext.Fixed(100*stays, 1)
		}
		t.Rows = append(t.Rows, []string{
			ZoneName(zone.Name), plaintext.Fixed(100*shares[z], 1), fmt.Sprint(zone.Endpoints), plaintext.Fixed(shares[z]*endpoints, 2),
			uses, inZone, loads.ofHome(z).text(),
		})
	}
	return t
}

// Groups returns the table of the groups with their endpoints and consumers.
func Groups(region allocate.Region, o Option) plaintext.Table {
	plan := o.Plan
	loads := loadsOf(region, o)
	t := plaintext.NewTable(">endpoints", "of", "serve", ">load %")
	for i, g := range plan.Groups {
		var from, to []string
		for _, m := range g.Members {
			name := ZoneName(plan.Zones[m.Zone])
			if len(g.Members) > 1 {
				name = fmt.Sprintf("%s (%d)", name, m.Endpoints)
			}
			from = append(from, name)
		}
		all := true
		for z, zone := range plan.Zones {
			if zone == "" {
				continue // it has no clients
			}
			c := slices.IndexFunc(g.Consumers, func(c allocate.Consumer) bool { return c.Zone == z })
			switch {
			case c < 0:
				all = false
			case g.Consumers[c].Weight != 1:
				all = false
				to = append(to, fmt.Sprintf("%s (weight %s)", zone, plaintext.Decimal(g.Consumers[c].Weight, 2)))
			default:
				to = append(to, zone)
			}
		}
		served := strings.Join(to, ", ")
		if all && len(to) > 1 {
			served = "all zones"
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(g.Size()), strings.Join(from, ", "), served, loads.ofGroup(i).text()})
	}
	return t
}

// usage counts the endpoints of each home zone that a zone uses, with the zone's weights.
type usage struct {
	byHome []float64
	whole  bool // all weights are one
}

func usageOf(plan allocate.Plan, zone int) usage {
	u := usage{byHome: make([]float64, len(plan.Zones)), whole: true}
	for _, g := range plan.Groups {
		for _, c := range g.Consumers {
			if c.Zone != zone {
				continue
			}
			u.whole = u.whole && c.Weight == 1
			for _, m := range g.Members {
				u.byHome[m.Zone] += c.Weight * float64(m.Endpoints)
			}
		}
	}
	return u
}

func (u usage) width() float64 {
	sum := 0.0
	for _, n := range u.byHome {
		sum += n
	}
	return sum
}

// inZone returns the share of the zone's traffic that stays in it.
func (u usage) inZone(zone int) float64 {
	if width := u.width(); width > 0 {
		return u.byHome[zone] / width
	}
	return 0
}

// text returns a form like "3 own + 1 of zone-b".
func (u usage) text(names []string, zone, endpoints int) string {
	width := u.width()
	if width == 0 {
		return "none"
	}
	if u.whole && width == float64(endpoints) && endpoints > int(u.byHome[zone]) {
		return fmt.Sprintf("all %d", endpoints)
	}
	var parts []string
	if n := u.byHome[zone]; n > 0 {
		parts = append(parts, plaintext.Decimal(n, 2)+" own")
	}
	for home, n := range u.byHome {
		if n > 0 && home != zone {
			parts = append(parts, plaintext.Decimal(n, 2)+" of "+ZoneName(names[home]))
		}
	}
	return strings.Join(parts, " + ")
}

// Uses describes the endpoints that a client in a zone uses, by their home zones, as in "3 own + 1 of zone-b" or "all
// 12".
func Uses(byHome map[string]int, zone string, endpoints int) string {
	homes := slices.Sorted(maps.Keys(byHome))
	u := usage{whole: true}
	for _, home := range homes {
		u.byHome = append(u.byHome, float64(byHome[home]))
	}
	at := slices.Index(homes, zone)
	if at < 0 || zone == "" {
		// The zone has no endpoints, and the unknown zone has no clients.
		homes, at = append(homes, zone), len(homes)
		u.byHome = append(u.byHome, 0)
	}
	return u.text(homes, at, endpoints)
}
