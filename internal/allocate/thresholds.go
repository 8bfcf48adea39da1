package allocate

// DefaultBound returns the bound of an algorithm that users do not tune. The algorithms of the
// published proposal start with several endpoints for each zone, since their plans are seldom good
// with fewer. Optimal and Flow have a plan for any number of endpoints. Auto starts at once, as in
// Kubernetes.
func DefaultBound(a Algorithm) Bound {
	switch a {
	case Optimal, Flow:
		return Bound{Algorithm: a, OverloadThreshold: DefaultOverloadThreshold}
	case Auto:
		return Bound{Algorithm: a, OverloadThreshold: DefaultAutoOverloadThreshold}
	}
	return Bound{
		Algorithm:         a,
		OverloadThreshold: DefaultOverloadThreshold,
		Start:             Start{PerZone: DefaultStartPerZone},
		Padding:           DefaultPadding,
	}
}

// Thresholds are the settings of a bound besides its algorithm. Nil is the default.
type Thresholds struct {
	Overload *float64
	Start    *Start
	Padding  *int
}

// ThresholdsOf returns the thresholds of a bound that are not defaults.
func ThresholdsOf(b Bound) Thresholds {
	var t Thresholds
	usual := DefaultBound(b.Algorithm)
	if b.OverloadThreshold != usual.OverloadThreshold {
		t.Overload = &b.OverloadThreshold
	}
	if b.Start != usual.Start || b.Padding != usual.Padding {
		t.Start, t.Padding = &b.Start, &b.Padding
	}
	return t
}

// Apply sets the thresholds in a bound. A starting threshold without a padding gets the default
// padding, so that the Service does not flap. Auto has nothing to set.
func (t Thresholds) Apply(b Bound) Bound {
	if b.Algorithm == Auto {
		return b
	}
	if t.Overload != nil {
		b.OverloadThreshold = *t.Overload
	}
	if t.Start != nil {
		b.Start = *t.Start
		if b.Start != (Start{}) && b.Padding == 0 {
			b.Padding = DefaultPadding
		}
	}
	if t.Padding != nil {
		b.Padding = *t.Padding
	}
	return b
}

// Bound returns the default bound of an algorithm with the thresholds applied.
func (t Thresholds) Bound(a Algorithm) Bound {
	return t.Apply(DefaultBound(a))
}
