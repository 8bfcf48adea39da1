package translate

// What Services are told of a cluster whose administrator has switched a delivery off.
const (
	GroupsAreOff = "delivery by groups is switched off in this cluster"
	HintsAreOff  = "delivery by hints is switched off in this cluster"
)
