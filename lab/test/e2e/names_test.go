package e2e_test

import (
	"time"

	"vicinity.dev/vicinity/lab/shape"
)

// namesArea is how names resolve near clients, and what that takes.
func namesArea() area {
	return area{
		name:  "names",
		shape: namesShape,
		promises: []promise{
			{name: "locators-at-scale", keep: locatorsAtScale, within: time.Hour},
		},
	}
}

// namesShape is a control plane: its promises bring up what they need beside it.
func namesShape() shape.Shape {
	s, err := shape.FromOptions(shape.Options{Name: "names", ControlPlaneOnly: true, SingleStack: true, Zones: []string{"a"}, NodesPerZone: []int{1}})
	if err != nil {
		panic(err) // the options are constants
	}
	return s
}
