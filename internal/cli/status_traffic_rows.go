package cli

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// secondsPerMonth are those of 730 hours, a twelfth of a year.
const secondsPerMonth = 730 * 3600

// gibibyte is the unit of prices.
const gibibyte = 1 << 30

// trafficKey is what proxies count by: the Service, and the zones of client and endpoint.
// Zones are empty where nobody knows.
type trafficKey struct {
	namespace, service, from, to string
}

// known says that both zones are.
func (k trafficKey) known() bool { return k.from != "" && k.to != "" }

// trafficCount is what was counted, or how much of it in a second.
type trafficCount struct {
	connections, request, reply float64
}

func (c trafficCount) bytes() float64 { return c.request + c.reply }

func (c trafficCount) plus(other trafficCount) trafficCount {
	return trafficCount{c.connections + other.connections, c.request + other.request, c.reply + other.reply}
}

// since is what was added to a counter each second. One that fell began anew.
func (c trafficCount) since(earlier trafficCount, seconds float64) trafficCount {
	added := func(now, before float64) float64 {
		if now < before {
			before = 0
		}
		return (now - before) / seconds
	}
	return trafficCount{
		added(c.connections, earlier.connections), added(c.request, earlier.request), added(c.reply, earlier.reply),
	}
}

// proxyReading is what one proxy has counted, as it said at some time.
type proxyReading struct {
	pod, node string
	at        time.Time
	counts    map[trafficKey]trafficCount
	// withoutBytes says that its node counts no bytes.
	withoutBytes bool
}

// trafficSince is what proxies have counted each second from one reading to the next.
// Those of which there is only one reading are left out, and named.
func trafficSince(first, second []proxyReading) (rates []proxyReading, leftOut []string) {
	before := map[string]proxyReading{}
	for _, r := range first {
		before[r.pod] = r
	}
	for _, r := range second {
		earlier, found := before[r.pod]
		seconds := r.at.Sub(earlier.at).Seconds()
		if !found || seconds <= 0 {
			leftOut = append(leftOut, r.node)
			continue
		}
		delete(before, r.pod)
		rate := r
		rate.counts = map[trafficKey]trafficCount{}
		for key, count := range r.counts {
			rate.counts[key] = count.since(earlier.counts[key], seconds)
		}
		rates = append(rates, rate)
	}
	for _, r := range before {
		leftOut = append(leftOut, r.node)
	}
	slices.Sort(leftOut)
	return rates, slices.Compact(leftOut)
}

// trafficRow is what there is to say about a Service, about those that are counted
// together, or about all.
type trafficRow struct {
	namespace, service string
	all                trafficCount
	// near stays in its zone, far leaves it. What is neither is of unknown zones.
	near, far trafficCount
	routes    []trafficRoute
}

// trafficRoute is what goes from one zone to one.
type trafficRoute struct {
	from, to string
	trafficCount
}

// crosses says that it leaves its zone.
func (r *trafficRoute) crosses() bool {
	return trafficKey{from: r.from, to: r.to}.known() && r.from != r.to
}

// inZone are the shares of connections and of bytes that stay in their zone, of those
// whose zones are known. They are not numbers if there are none.
func (r *trafficRow) inZone() (connections, bytes float64) {
	return r.near.connections / (r.near.connections + r.far.connections), r.near.bytes() / (r.near.bytes() + r.far.bytes())
}

// monthly is what bytes a second cost in a month.
func monthly(bytesPerSecond, perGiB float64) float64 {
	return bytesPerSecond * secondsPerMonth / gibibyte * perGiB
}

// trafficRows add up what proxies say, for each Service of a namespace, or of all if it
// is empty. Who sends the most to other zones comes first.
func trafficRows(readings []proxyReading, namespace string) []trafficRow {
	sums := map[trafficKey]trafficCount{}
	for i := range readings {
		for key, count := range readings[i].counts {
			if namespace == "" || key.namespace == namespace {
				sums[key] = sums[key].plus(count)
			}
		}
	}
	rows := map[[2]string]*trafficRow{}
	for _, key := range slices.SortedFunc(maps.Keys(sums), compareTraffic) {
		if sums[key] == (trafficCount{}) {
			continue
		}
		row := rows[[2]string{key.namespace, key.service}]
		if row == nil {
			row = &trafficRow{namespace: key.namespace, service: key.service}
			rows[[2]string{key.namespace, key.service}] = row
		}
		row.add(trafficRoute{key.from, key.to, sums[key]})
	}
	list := make([]trafficRow, 0, len(rows))
	for _, row := range rows {
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b trafficRow) int {
		return cmp.Or(
			cmp.Compare(b.far.bytes(), a.far.bytes()), cmp.Compare(b.far.connections, a.far.connections),
			strings.Compare(a.namespace, b.namespace), strings.Compare(a.service, b.service),
		)
	})
	return list
}

func compareTraffic(a, b trafficKey) int {
	return cmp.Or(
		strings.Compare(a.namespace, b.namespace), strings.Compare(a.service, b.service),
		strings.Compare(a.from, b.from), strings.Compare(a.to, b.to),
	)
}

// add adds what goes from one zone to one.
func (r *trafficRow) add(route trafficRoute) {
	r.all = r.all.plus(route.trafficCount)
	switch {
	case route.crosses():
		r.far = r.far.plus(route.trafficCount)
	case route.from != "" && route.to != "":
		r.near = r.near.plus(route.trafficCount)
	}
	r.routes = append(r.routes, route)
}

// trafficTotal adds rows up, their routes by zones.
func trafficTotal(rows []trafficRow) trafficRow {
	var total trafficRow
	sums := map[trafficKey]trafficCount{}
	for i := range rows {
		for _, route := range rows[i].routes {
			key := trafficKey{from: route.from, to: route.to}
			sums[key] = sums[key].plus(route.trafficCount)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(sums), compareTraffic) {
		total.add(trafficRoute{key.from, key.to, sums[key]})
	}
	return total
}

// isShare says that a share is one.
func isShare(share float64) bool { return !math.IsNaN(share) }
