package accounting

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// otherServices is the Service label of all Services without series, with an empty namespace.
const otherServices = "other"

type descriptions struct {
	connections, bytes                      *prometheus.Desc
	switches, lowerBound, open, lost        *prometheus.Desc
	readings, readingSeconds, readingPauses *prometheus.Desc
}

func describe() descriptions {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("vicinity_proxy_"+name, help, labels, nil)
	}
	return descriptions{
		connections: describe("connections_total", "Connections to Services from this node, by zones.",
			"namespace", "service", "source_zone", "destination_zone"),
		bytes: describe("bytes_total", "Bytes of connections to Services from this node, by zones and direction.",
			"namespace", "service", "source_zone", "destination_zone", "direction"),
		switches:   describe("accounting_enabled", "Whether the kernel counts bytes of connections, and whether it reports their ends.", "what"),
		lowerBound: describe("accounting_lower_bound", "Whether bytes are lower bounds, since a flowtable can forward packets uncounted."),
		open:       describe("accounting_open_connections", "Open connections to Services that the proxy remembers."),
		lost:       describe("accounting_losses_total", "Times that the kernel had no room for reports of ended connections."),
		readings:   describe("accounting_readings_total", "Readings of all open connections, by result.", "result"),
		readingSeconds: describe("accounting_reading_cpu_seconds_total",
			"CPU time that readings of all open connections took."),
		readingPauses: describe("accounting_reading_interval_seconds", "Time between readings of all open connections."),
	}
}

// Describe sends the descriptions of all metrics.
func (a *Accountant) Describe(to chan<- *prometheus.Desc) {
	d := &a.descriptions
	for _, one := range []*prometheus.Desc{
		d.connections, d.bytes, d.switches, d.lowerBound, d.open, d.lost, d.readings, d.readingSeconds, d.readingPauses,
	} {
		to <- one
	}
}

// Collect sends all metrics of one moment.
func (a *Accountant) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	rows, h, open := a.ledger.book.rows(), a.health, len(a.ledger.open)
	a.mu.Unlock()

	d := &a.descriptions
	counter := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, r := range rows {
		labels := []string{r.namespace, r.service, r.source, r.destination}
		counter(d.connections, float64(r.connections), labels...)
		if r.moved == (traffic{}) {
			continue // the bytes are unknown
		}
		counter(d.bytes, float64(r.moved.request), append(labels, "request")...)
		counter(d.bytes, float64(r.moved.reply), append(labels, "reply")...)
	}
	gauge(d.switches, boolValue(h.bytes), "bytes")
	gauge(d.switches, boolValue(h.ends), "ends")
	gauge(d.lowerBound, boolValue(h.isLowerBound))
	gauge(d.open, float64(open))
	counter(d.lost, float64(h.lost))
	counter(d.readings, float64(h.done), "done")
	counter(d.readings, float64(h.failed), "failed")
	counter(d.readingSeconds, h.used.Seconds())
	gauge(d.readingPauses, h.pause.Seconds())
}

func boolValue(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// row has the series of a route, for a Service or for all others.
type row struct {
	name
	route
	totals
}

func (b *book) rows() []row {
	var rows []row
	for _, s := range b.services {
		if !s.shown {
			continue
		}
		for r, l := range s.lines {
			if l.own.connections > 0 || l.own.moved != (traffic{}) {
				rows = append(rows, row{s.name, r, l.own})
			}
		}
	}
	for r, t := range b.others {
		if t.connections > 0 || t.moved != (traffic{}) {
			rows = append(rows, row{name{service: otherServices}, r, *t})
		}
	}
	slices.SortFunc(rows, func(a, other row) int {
		return cmp.Or(a.name.compare(other.name), a.route.compare(other.route))
	})
	return rows
}
