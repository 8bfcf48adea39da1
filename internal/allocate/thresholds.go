package allocate

// DefaultBound is what is asked of an algorithm where users say no more. The five of
// the published proposal start with several endpoints for each zone, since below that
// their plans are seldom good. Optimal and Flow have no such start: they have a plan
// below the threshold for any number of endpoints, if only the one that divides
// nothing. Auto is
// Kubernetes' own heuristic, which starts at once.
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

// Thresholds are what users say of a bound beside its algorithm. What is nil is left
// to the algorithm's defaults.
type Thresholds struct {
	Overload *float64
	Start    *Start
	Padding  *int
}

// ThresholdsOf are those of a bound that are not its algorithm's defaults.
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

// Apply gives a bound what users say. A starting threshold without a padding gets the
// default one, so that a Service whose size wavers around it does not flap. Auto has
// nothing that can be set.
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

// Bound is the default bound of an algorithm with what users say.
func (t Thresholds) Bound(a Algorithm) Bound {
	return t.Apply(DefaultBound(a))
}
