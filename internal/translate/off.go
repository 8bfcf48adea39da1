package translate

// What is said of Services if the administrator has switched a delivery off.
const (
	GroupsAreOff = "delivery by groups is switched off in this cluster"
	HintsAreOff  = "delivery by hints is switched off in this cluster"
)
