package proxy

import (
	"strconv"

	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
)

// What the tests of package cluster use, too.
var (
	start                           = clustertest.Start
	aNode, aService, aGroup, notFor = clustertest.Node, clustertest.Service, clustertest.Group, clustertest.NotFor
	aRange, publishedNodes          = clustertest.Range, clustertest.PublishedNodes
	eventually, background          = clustertest.Eventually, clustertest.Background
)

// versionNumber is a resource version as a number, 0 if it is none.
func versionNumber(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
