package cluster

import "vicinity.dev/vicinity/internal/proxy/cluster/clustertest"

// The tests of package proxy use these too.
var (
	start                           = clustertest.Start
	aNode, aService, aGroup, notFor = clustertest.Node, clustertest.Service, clustertest.Group, clustertest.NotFor
	aRange, publishedNodes          = clustertest.Range, clustertest.PublishedNodes
	eventually, background          = clustertest.Eventually, clustertest.Background
)
