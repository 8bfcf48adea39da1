package proxy

import "k8s.io/apimachinery/pkg/types"

// batch is what one sync compiles. It has room for so many elements that the kernel takes out and
// puts in: until it has done that all of them are in memory at once, and everything else waits.
type batch struct {
	// most is how many there may be, any number if it is zero, and taken how many there are.
	most, taken int
	// begun says that there is a Service that could have waited. The first one has room whatever
	// it takes.
	begun   bool
	efforts map[types.NamespacedName]effort
}

func newBatch(most, services int) *batch {
	return &batch{most: most, efforts: make(map[types.NamespacedName]effort, services)}
}

// fits reports whether there is room for so many elements more.
func (b *batch) fits(elements int) bool {
	return b.most == 0 || !b.begun || b.taken+elements <= b.most
}

// add adds a Service, or has another effort of one that is there count.
func (b *batch) add(name types.NamespacedName, one effort) {
	b.taken += one.elements() - b.efforts[name].elements()
	b.efforts[name] = one
}
