package vicinity

import (
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The outcomes of answers for Services with groups.
const (
	// outcomeNearest is an answer without some records.
	outcomeNearest = "nearest"
	// outcomeWhole is an answer with all records: the client uses all.
	outcomeWhole = "whole"
	// outcomeFallback is an answer with all records: otherwise the client would get none.
	outcomeFallback = "fallback"
	// outcomeNone is an answer without records, because tiers are hard.
	outcomeNone = "none"
	// outcomeUnsynced is a failure, because resources are not listed yet.
	outcomeUnsynced = "unsynced"
)

var (
	answerCount = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace, Subsystem: pluginName, Name: "answers_total",
		Help: "Answers with records of headless Services that have groups, by outcome.",
	}, []string{"server", "outcome"})
	clientCount = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace, Subsystem: pluginName, Name: "clients_total",
		Help: "Clients of these answers, by how they were located.",
	}, []string{"server", "located"})
	objectCount = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: plugin.Namespace, Subsystem: pluginName, Name: "objects",
		Help: "Objects that answers depend on, by resource.",
	}, []string{"resource"})
	malformedCount = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace, Subsystem: pluginName, Name: "malformed_objects_total",
		Help: "Objects received with an invalid address or range, by resource.",
	}, []string{"resource"})
)
