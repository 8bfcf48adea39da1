package proxy

import (
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
)

// What the tests of package cluster use, too.
var (
	start                           = clustertest.Start
	aNode, aService, aGroup, notFor = clustertest.Node, clustertest.Service, clustertest.Group, clustertest.NotFor
	aRange, publishedNodes          = clustertest.Range, clustertest.PublishedNodes
	eventually, background          = clustertest.Eventually, clustertest.Background
)
