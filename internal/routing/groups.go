package routing

import (
	"time"

	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/translate"
)

// GroupState is what groups depend on beside the decision.
type GroupState struct {
	Now time.Time
	// HandOver says that kube-proxy serves the Service too, so that proxies have to
	// acknowledge what they have programmed.
	HandOver bool
}

// Groups is the next step towards the groups that deliver a decision.
func Groups(in Input, d Decision, at GroupState) groups.Changes {
	of := groups.Input{
		Service: in.Service, Slices: translate.ProxySlices(in.Service, in.Slices), Groups: in.Groups, Cluster: in.Cluster, Intent: d.Request.Intent,
		Size: in.Settings.GroupSize, Grace: in.Settings.ShrinkGrace, Now: at.Now, HandOver: at.HandOver,
	}
	for i := range d.Families {
		f := &d.Families[i]
		plan := groups.Plan{Family: f.Family, Region: f.Region, Plan: f.Plan, Assigned: f.Assigned}
		if f.Nodes != nil {
			plan.Skips = f.Nodes.Skips
		}
		of.Plans = append(of.Plans, plan)
	}
	return groups.Next(of)
}
