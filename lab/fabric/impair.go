package fabric

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
)

// An impaired zone has chains of its own, which follow those of all zones:
//
//	chain forward-ZONE {
//		type filter hook forward priority filter + 1
//		FROM ZONE FROM . TO != @same numgen random mod 100 < LOSS drop
//		FROM ZONE FROM . TO != @same queue flags bypass to QUEUE
//		TO ZONE …                                               # likewise
//	}
//	chain input-ZONE …                                              # FROM ZONE
//	chain output-ZONE …                                             # TO ZONE

// SetImpairment makes packets between a zone and the other zones or the control plane suffer. Only while
// DelayPackets reads the zone's queue, they are delayed. The zero impairment repairs the zone.
func (f *Fabric) SetImpairment(zone string, i shape.Impairment) error {
	var harms [][]expr.Any
	if i.Loss > 0 {
		harms = append(harms, lose(i.Loss))
	}
	if i.Delay.Duration > 0 {
		harms = append(harms, enqueue(ZoneQueue(zone)))
	}
	err := f.inRules(func(conn *nftables.Conn, r rules) error {
		from, to := r.zoneOf(expr.MetaKeyIIFNAME, fromRegister), r.zoneOf(expr.MetaKeyOIFNAME, toRegister)
		leaves, enters, different := rule(from, isZone(zone, fromRegister)), rule(to, isZone(zone, toRegister)), notInSet(r.same, fromRegister)
		for name, hook := range map[string]*nftables.ChainHook{
			"forward": nftables.ChainHookForward, "input": nftables.ChainHookInput, "output": nftables.ChainHookOutput,
		} {
			chain := &nftables.Chain{
				Table: r.table, Name: name + "-" + zone, Type: nftables.ChainTypeFilter,
				Hooknum: hook, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityFilter + 1),
			}
			// Deleting a missing chain would fail.
			conn.AddChain(chain)
			conn.DelChain(chain)
			if len(harms) == 0 {
				continue
			}
			conn.AddChain(chain)
			add := func(parts ...[]expr.Any) {
				conn.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: rule(parts...)})
			}
			add(neighbourDiscovery(), accept()) // as in addRules
			for _, harm := range harms {
				switch hook {
				case nftables.ChainHookForward:
					add(leaves, to, different, harm)
					add(enters, from, different, harm)
				case nftables.ChainHookInput:
					add(leaves, harm)
				case nftables.ChainHookOutput:
					add(enters, harm)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("changing the impairment of zone %q: %w; the kernel must offer nft numgen and NFQUEUE", zone, err)
	}
	return nil
}

func isZone(zone string, register uint32) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: zoneKey(zone)}}
}

// lose drops a percentage of packets at random.
func lose(percentage int) []expr.Any {
	return append([]expr.Any{
		&expr.Numgen{Register: fromRegister, Modulus: 100, Type: unix.NFT_NG_RANDOM},
		&expr.Byteorder{SourceRegister: fromRegister, DestRegister: fromRegister, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpLt, Register: fromRegister, Data: binaryutil.BigEndian.PutUint32(uint32(percentage))},
	}, drop()...)
}

// enqueue hands packets to the reader of a queue, if there is one. It is the target of xtables, since a
// kernel may lack the one of nftables.
func enqueue(queue uint16) []expr.Any {
	const bypass = 1
	// struct xt_NFQ_info_v3: first queue, number of queues, flags; padded.
	info := make(xt.Unknown, 0, 8)
	for _, value := range []uint16{queue, 1, bypass, 0} {
		info = append(info, binaryutil.NativeEndian.PutUint16(value)...)
	}
	return []expr.Any{&expr.Target{Name: "NFQUEUE", Rev: 3, Info: &info}}
}

// ZoneQueue returns the number of the queue of an impaired zone.
func ZoneQueue(zone string) uint16 { return uint16(zoneID(zone)) }
