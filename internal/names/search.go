package names

import "strings"

// Search are the names that a client of a namespace tries for a name that it was given, in
// order: the first that exists counts. The zone is that of the cluster and ends with a dot, as
// do the names.
func Search(name, namespace, zone string) []string {
	if strings.HasSuffix(name, ".") {
		return []string{name}
	}
	whole := name + "."
	if Within(whole, zone) {
		return []string{whole}
	}
	return []string{whole + namespace + ".svc." + zone, whole + "svc." + zone, whole + zone, whole}
}

// Within reports whether a name is of a zone or below it. Both end with a dot.
func Within(name, zone string) bool {
	at := len(name) - len(zone)
	return at >= 0 && Same(name[at:], zone) && (at == 0 || name[at-1] == '.')
}

// ServiceName are the namespace and the name of the Service, as the API has them.
func (n Name) ServiceName() (namespace, name string) {
	name, namespace, _ = strings.Cut(strings.ToLower(n.Service), ".")
	return namespace, name
}
