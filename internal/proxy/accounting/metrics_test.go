package accounting

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// gathered returns an Accountant that has counted a connection with bytes, one without bytes, and one without room for
// series of its own.
func gathered(t *testing.T) *Accountant {
	t.Helper()
	a := accountant(t, Options{Resolve: numbered})
	a.ledger.book.most = 2
	k := newFakeKernel()
	k.flowtable = "flowtable f of table t does not count"
	a.kernel = k
	a.readConnections(t.Context())
	a.ledger.begin()
	a.ledger.recordOpen(to(1, 80, 1).moving(100, 2000))
	a.ledger.finish(true, noon)
	a.ledger.recordEnd(to(2, 81, 2))
	a.ledger.recordEnd(to(3, 82, 2).moving(1, 2))
	return a
}

func TestMetrics(t *testing.T) {
	const want = `
# HELP vicinity_proxy_accounting_enabled Whether the kernel counts bytes of connections, and whether it reports their ends.
# TYPE vicinity_proxy_accounting_enabled gauge
vicinity_proxy_accounting_enabled{what="bytes"} 1
vicinity_proxy_accounting_enabled{what="ends"} 1
# HELP vicinity_proxy_accounting_losses_total Times that the kernel had no room for reports of ended connections.
# TYPE vicinity_proxy_accounting_losses_total counter
vicinity_proxy_accounting_losses_total 0
# HELP vicinity_proxy_accounting_lower_bound Whether bytes are lower bounds, since a flowtable can forward packets uncounted.
# TYPE vicinity_proxy_accounting_lower_bound gauge
vicinity_proxy_accounting_lower_bound 1
# HELP vicinity_proxy_accounting_open_connections Open connections to Services that the proxy remembers.
# TYPE vicinity_proxy_accounting_open_connections gauge
vicinity_proxy_accounting_open_connections 1
# HELP vicinity_proxy_accounting_reading_cpu_seconds_total CPU time that readings of all open connections took.
# TYPE vicinity_proxy_accounting_reading_cpu_seconds_total counter
vicinity_proxy_accounting_reading_cpu_seconds_total 0
# HELP vicinity_proxy_accounting_reading_interval_seconds Time between readings of all open connections.
# TYPE vicinity_proxy_accounting_reading_interval_seconds gauge
vicinity_proxy_accounting_reading_interval_seconds 15
# HELP vicinity_proxy_accounting_readings_total Readings of all open connections, by result.
# TYPE vicinity_proxy_accounting_readings_total counter
vicinity_proxy_accounting_readings_total{result="done"} 1
vicinity_proxy_accounting_readings_total{result="failed"} 0
# HELP vicinity_proxy_bytes_total Bytes of connections to Services from this node, by zones and direction.
# TYPE vicinity_proxy_bytes_total counter
vicinity_proxy_bytes_total{destination_zone="zone-1",direction="reply",namespace="shop",service="service-80",source_zone="zone-a"} 2000
vicinity_proxy_bytes_total{destination_zone="zone-1",direction="request",namespace="shop",service="service-80",source_zone="zone-a"} 100
vicinity_proxy_bytes_total{destination_zone="zone-2",direction="reply",namespace="",service="other",source_zone="zone-a"} 2
vicinity_proxy_bytes_total{destination_zone="zone-2",direction="request",namespace="",service="other",source_zone="zone-a"} 1
# HELP vicinity_proxy_connections_total Connections to Services from this node, by zones.
# TYPE vicinity_proxy_connections_total counter
vicinity_proxy_connections_total{destination_zone="zone-1",namespace="shop",service="service-80",source_zone="zone-a"} 1
vicinity_proxy_connections_total{destination_zone="zone-2",namespace="",service="other",source_zone="zone-a"} 1
vicinity_proxy_connections_total{destination_zone="zone-2",namespace="shop",service="service-81",source_zone="zone-a"} 1
`
	if err := testutil.CollectAndCompare(gathered(t), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
