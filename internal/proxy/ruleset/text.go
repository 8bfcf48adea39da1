package ruleset

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Text returns the table of the last Commit in nft's syntax, without unused parts. Only the order of slots depends on
// history.
func (t *Table) Text() string {
	w := &textWriter{family: t.config.Family}
	w.line(0, "table %s %s {", w.family, TableName)
	elements := t.elements()
	for id, set := range sets {
		w.set(set, elements[id])
	}
	for _, set := range t.affinitySets() {
		w.set(set, nil)
	}
	for i, c := range t.chains() {
		if i > 0 {
			w.WriteByte('\n')
		}
		w.chain(c)
	}
	w.line(0, "}")
	return w.String()
}

type textWriter struct {
	strings.Builder
	family Family
}

func (w *textWriter) line(indent int, format string, args ...any) {
	w.WriteString(strings.Repeat("\t", indent))
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

func (w *textWriter) set(set *Set, elements []Element) {
	// nft knows the type of a slot's number only by the expression that draws it. typeof and type cannot be mixed.
	kind, types := "type", fieldTypes
	if slices.Contains(set.Key, FieldSlot) {
		kind, types = "typeof", fieldSources
	}
	holds := kind + " " + types(w.family, set.Key)
	switch {
	case set.Verdicts:
		holds += " : verdict"
	case set.Data != nil:
		holds += " : " + types(w.family, set.Data)
	}
	if set.Verdicts || set.Data != nil {
		w.line(1, "map %s {", set.Name)
	} else {
		w.line(1, "set %s {", set.Name)
	}
	w.line(2, "%s", holds)
	if set.Dynamic {
		w.line(2, "size %d", cmp.Or(set.Size, MostAffinityClients))
		w.line(2, "flags dynamic,timeout")
	}
	for i, e := range elements {
		begin, end := "\t     ", ","
		if i == 0 {
			begin = "elements = { "
		}
		if i == len(elements)-1 {
			end = " }"
		}
		w.line(2, "%s%s%s", begin, w.family.elementText(set, e), end)
	}
	w.line(1, "}")
	w.WriteByte('\n')
}

func (w *textWriter) chain(c *Chain) {
	w.line(1, "chain %s {", c.Name)
	if c.Base != nil {
		w.line(2, "type %s hook %s priority %d; policy accept;", c.Base.kind(), c.Base.Hook, c.Base.Priority)
	}
	for _, r := range c.Rules {
		w.line(2, "%s", r)
	}
	w.line(1, "}")
}

// String is the family in nft's words.
func (f Family) String() string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

func (b Base) kind() string {
	if b.NAT {
		return "nat"
	}
	return "filter"
}

// String is the hook in nft's words.
func (h Hook) String() string {
	return [...]string{"prerouting", "input", "forward", "output", "postrouting"}[h]
}

func fieldTypes(family Family, all []Field) string {
	address := "ipv4_addr"
	if family == IPv6 {
		address = "ipv6_addr"
	}
	return joinFields(all, map[Field]string{FieldAddress: address, FieldProtocol: "inet_proto", FieldPort: "inet_service"})
}

// fieldSources returns expressions whose values have the types of the fields.
func fieldSources(family Family, all []Field) string {
	return joinFields(all, map[Field]string{
		FieldAddress: DestinationAddress.text(family), FieldProtocol: TransportProtocol.text(family),
		FieldPort: DestinationPort.text(family), FieldSlot: "numgen random mod 2",
	})
}

func joinFields(all []Field, words map[Field]string) string {
	texts := make([]string, len(all))
	for i, field := range all {
		texts[i] = words[field]
	}
	return strings.Join(texts, " . ")
}

func (f Family) elementText(set *Set, e Element) string {
	text := f.KeyText(set.Key, e.Key)
	switch {
	case set.Verdicts:
		return text + " : " + e.Verdict.String()
	case set.Data != nil:
		return text + " : " + f.KeyText(set.Data, e.Data)
	default:
		return text
	}
}

// KeyText returns the fields of a key or of data in nft's syntax.
func (f Family) KeyText(all []Field, bytes string) string {
	texts := make([]string, len(all))
	for i, field := range all {
		length := wordLength
		if field == FieldAddress && f == IPv6 {
			length = 16
		}
		if len(bytes) < length {
			return fmt.Sprintf("the bytes %x", bytes)
		}
		word := []byte(bytes[:length])
		bytes = bytes[length:]
		switch field {
		case FieldAddress:
			address, _ := netip.AddrFromSlice(word)
			texts[i] = address.String()
		case FieldProtocol:
			texts[i] = Protocol(word[0]).String()
		case FieldPort:
			texts[i] = fmt.Sprint(binary.BigEndian.Uint16(word))
		case FieldSlot:
			texts[i] = fmt.Sprint(binary.NativeEndian.Uint32(word))
		}
	}
	return strings.Join(texts, " . ")
}
