package ruleset

import (
	"encoding/binary"
	"net/netip"
)

// The lengths of keys in bytes.
const (
	wordLength  = 4
	frontLength = 2 * wordLength // without the address
)

func appendAddress(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return append(b, four[:]...)
	}
	sixteen := a.As16()
	return append(b, sixteen[:]...)
}

func appendPort(b []byte, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

func appendFront(b []byte, f Front) []byte {
	b = appendAddress(b, f.Address)
	b = append(b, byte(f.Protocol), 0, 0, 0)
	return appendPort(b, f.Port)
}

func frontKey(f Front) string {
	var room [16 + frontLength]byte
	return string(appendFront(room[:0], f))
}

func slotKey(f Front, slot uint32) string {
	var room [16 + frontLength + wordLength]byte
	return string(binary.NativeEndian.AppendUint32(appendFront(room[:0], f), slot))
}

// TargetData returns a target in the bytes of a map.
func TargetData(target netip.AddrPort) string {
	var room [16 + wordLength]byte
	return string(appendPort(appendAddress(room[:0], target.Addr()), target.Port()))
}

func addressKey(addresses ...netip.Addr) string {
	var room [2 * 16]byte
	b := room[:0]
	for _, a := range addresses {
		b = appendAddress(b, a)
	}
	return string(b)
}

// TakeAddress reads the address at the beginning of a key, and returns the rest.
func (f Family) TakeAddress(key string) (netip.Addr, string, bool) {
	length := 4
	if f == IPv6 {
		length = 16
	}
	if len(key) < length {
		return netip.Addr{}, "", false
	}
	a, ok := netip.AddrFromSlice([]byte(key[:length]))
	return a, key[length:], ok
}

// TakeFront reads the front at the beginning of a key, and returns the rest. It returns false for bytes that are no front.
func (f Family) TakeFront(key string) (Front, string, bool) {
	address, rest, ok := f.TakeAddress(key)
	if !ok || len(rest) < frontLength {
		return Front{}, "", false
	}
	found := Front{
		Address:  address,
		Protocol: Protocol(rest[0]),
		Port:     binary.BigEndian.Uint16([]byte(rest[wordLength:])),
	}
	end := len(key) - len(rest) + frontLength
	return found, key[end:], frontKey(found) == key[:end]
}

// TakeTarget reads the target in the bytes of a map. The result is invalid for bytes that are no target.
func (f Family) TakeTarget(data string) netip.AddrPort {
	address, rest, ok := f.TakeAddress(data)
	if !ok || len(rest) != wordLength {
		return netip.AddrPort{}
	}
	target := netip.AddrPortFrom(address, binary.BigEndian.Uint16([]byte(rest)))
	if TargetData(target) != data {
		return netip.AddrPort{}
	}
	return target
}

// takeSlot reads the number of a slot at the end of a key.
func takeSlot(rest string) (uint32, bool) {
	if len(rest) != wordLength {
		return 0, false
	}
	return binary.NativeEndian.Uint32([]byte(rest)), true
}
