package routing

import "time"

// groupProgress is how far a delivery by groups has come.
type groupProgress struct {
	// notes are sentences for the condition, without numbers that change.
	notes []string
	// again is when to look again, zero if an event will tell.
	again time.Duration
	// writes is the number of objects written.
	writes int
	// given says that the Service was given to another proxy, so that it is not what
	// it was when it was read.
	given bool
}
