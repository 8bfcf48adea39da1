package accounting

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Messages as Linux 6.18 wrote them on a little-endian machine, without their headers,
// each of a connection of 1,000 bytes and its echo.
const (
	// A TCP connection by IPv6 as it ends, with bytes counted and with times.
	endedTCP6 = "0a0000004c0001802c0001801400030020010db80002000000000000000000011400040020010db80001000000000000" +
		"000000011c0002800500010006000000060002008054000006000300005000004c0002802c0001801400030020010db8" +
		"0002000000000000000000011400040020010db80002000000000000000000011c000280050001000600000006000200" +
		"1f900000060003008054000008000c00cfdb9ded08000300000003ae08000700000000771c0009800c00010000000000" +
		"000000060c00020000000000000005a01c000a800c00010000000000000000040c00020000000000000005101c001480" +
		"0c00010018ea353b68ec1d940c00020018ea353b6a5f3a07100004800c00018005000100070000000c001b0018ea353b" +
		"6a5f3aa8"
	// The same one in a reading, before that.
	openTCP6 = "0a0000004c0001802c0001801400030020010db80002000000000000000000011400040020010db80001000000000000" +
		"000000011c0002800500010006000000060002008054000006000300005000004c0002802c0001801400030020010db8" +
		"0002000000000000000000011400040020010db80002000000000000000000011c000280050001000600000006000200" +
		"1f900000060003008054000008000300000001ae080008000000000008000c00cfdb9ded08000b000000000108000700" +
		"00000077300004802c0001800500010007000000050002000a000000050003000a000000060004002700000006000500" +
		"230000001c0009800c00010000000000000000060c00020000000000000005a01c000a800c0001000000000000000004" +
		"0c0002000000000000000510100014800c00010018ea353b68ec1d94"
	// UDP by IPv4, with bytes counted.
	openUDP4 = "02000000340001801400018008000100c000020108000200c63364011c0002800500010011000000060002008ab20000" +
		"0600030000500000340002801400018008000100c000020108000200c00002011c000280050001001100000006000200" +
		"1f900000060003008ab2000008000300000001aa080008000000000008000c00534df59108000b000000000108000700" +
		"0000001d1c0009800c00010000000000000000010c00020000000000000004041c000a800c0001000000000000000001" +
		"0c0002000000000000000404100014800c00010018ea353b691b0ab2"
	// UDP by IPv4, without bytes.
	uncounted = "02000000340001801400018008000100c000020108000200c63364011c000280050001001100000006000200ed580000" +
		"0600030000500000340002801400018008000100c000020108000200c00002011c000280050001001100000006000200" +
		"1f90000006000300ed58000008000300000001aa080008000000000008000c0048c89ca608000b000000000108000700" +
		"0000001d"
	// UDP whose destination is not translated.
	untranslated = "02000000340001801400018008000100c000020108000200c00002011c000280050001001100000006000200a3390000" +
		"060003001f900000340002801400018008000100c000020108000200c00002011c000280050001001100000006000200" +
		"1f90000006000300a3390000080003000000018a080008000000000008000c00c03f0a3308000b000000000108000700" +
		"0000001d"
	// An echo of ICMP, which has no ports, with the status of a translated one.
	translatedICMP = "020000003c0001801400018008000100c000020108000200c00002012400028005000100010000000600040000010000" +
		"050005000800000005000600000000003c0002801400018008000100c000020108000200c00002012400028005000100" +
		"0100000006000400000100000500050000000000050006000000000008000300000001aa080008000000000008000c00" +
		"8b5d384908000b0000000001080007000000001d"
)

func recorded(t testing.TB, text string) []byte {
	t.Helper()
	message, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func front(address netip.Addr, protocol ruleset.Protocol) ruleset.Front {
	return ruleset.Front{Address: address, Protocol: protocol, Port: frontPort}
}

func TestConnectionsAreRead(t *testing.T) {
	for _, test := range []struct {
		name, message string
		want          connection
	}{
		{"TCP over IPv6", endedTCP6, connection{front: front(front6, ruleset.TCP), target: target6, moved: traffic{1440, 1296}, dying: true}},
		{"UDP over IPv4", openUDP4, connection{front: front(front4, ruleset.UDP), target: target4, moved: traffic{1028, 1028}}},
		{"without bytes", uncounted, connection{front: front(front4, ruleset.UDP), target: target4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := newReader().connection(recorded(t, test.message))
			if got.key == 0 {
				t.Error("no key")
			}
			got.key = 0
			if !ok || got != test.want {
				t.Errorf("got %+v, %t, want %+v", got, ok, test.want)
			}
		})
	}
}

func TestOtherConnectionsAreLeftOut(t *testing.T) {
	for name, message := range map[string]string{
		"untranslated": untranslated, "without ports": translatedICMP, "nothing": "", "nothing but the preamble": "02000000",
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := newReader().connection(recorded(t, message)); ok {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A connection is known again as it ends, though the kernel tells more of it then, and
// is not taken for another between the same two.
func TestKeysTellConnectionsApart(t *testing.T) {
	r := newReader()
	key := func(message []byte) uint64 {
		c, ok := r.connection(message)
		if !ok {
			t.Fatal("no connection")
		}
		return c.key
	}
	open, ended := recorded(t, openTCP6), recorded(t, endedTCP6)
	if key(open) != key(ended) {
		t.Error("a connection has another key when it ends")
	}
	keys := map[uint64]string{key(open): "the first"}
	for name, place := range map[string]string{"another id": "cfdb9ded", "another port of the client": "80540000060003"} {
		changed := recorded(t, openTCP6)
		at := -1
		for i := range changed {
			if fmt.Sprintf("%x", changed[i:min(i+len(place)/2, len(changed))]) == place {
				at = i
				break
			}
		}
		if at < 0 {
			t.Fatalf("%s is not in the message", place)
		}
		changed[at]++
		if other, used := keys[key(changed)]; used {
			t.Errorf("%s: the key of %s", name, other)
		}
		keys[key(changed)] = name
	}
}

// Whatever is read of a message, nothing outside of it is.
func FuzzConnection(f *testing.F) {
	for _, message := range []string{endedTCP6, openUDP4, uncounted, untranslated, translatedICMP, ""} {
		f.Add(recorded(f, message))
	}
	r := newReader()
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, ok := r.connection(payload)
		if ok && (!c.front.Address.IsValid() || !c.target.IsValid() || c.front.Port == 0) {
			t.Errorf("%x is %+v", payload, c)
		}
		if again, _ := r.connection(payload); again != c {
			t.Errorf("%x is %+v, and then %+v", payload, c, again)
		}
	})
}

func BenchmarkMessage(b *testing.B) {
	for _, test := range []struct{ name, message string }{{"IPv4", openUDP4}, {"IPv6", endedTCP6}, {"untranslated", untranslated}} {
		b.Run(test.name, func(b *testing.B) {
			r, payload := newReader(), recorded(b, test.message)
			b.ReportAllocs()
			for b.Loop() {
				r.connection(payload)
			}
		})
	}
}
