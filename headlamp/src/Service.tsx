import { FamilyView, ServiceView } from './api.gen';
import { DataTable, Facts, Section, Sentences } from './parts';
import { useView } from './useView';
import { count, deliveryWord, few, handOverWord, percent, place } from './words';

/** How many zones a table of all can have, and how many ways are listed where there are more. */
const zonesInMatrix = 8;
const waysShown = 50;

interface Way {
  planned?: number;
  measured?: number;
}

/** The traffic from zone to zone, in percent of all: planned beside measured. */
function waysOf(family: FamilyView, view: ServiceView): Map<string, Map<string, Way>> {
  const ways = new Map<string, Map<string, Way>>();
  const way = (from: string, to: string) => {
    const of = ways.get(from) ?? new Map<string, Way>();
    ways.set(from, of);
    const found = of.get(to) ?? {};
    of.set(to, found);
    return found;
  };
  for (const flow of family.flows ?? []) {
    way(flow.from, flow.to).planned = flow.percent;
  }
  const all = view.traffic?.connections ?? 0;
  for (const route of (all > 0 && view.traffic?.routes) || []) {
    const to = way(route.from, route.to);
    to.measured = (to.measured ?? 0) + (100 * route.connections) / all;
  }
  return ways;
}

function Matrix(props: { family: FamilyView; view: ServiceView }) {
  const ways = waysOf(props.family, props.view);
  const zones = Array.from(
    new Set(Array.from(ways).flatMap(([from, of]) => [from, ...Array.from(of.keys())]))
  ).sort();
  const caption = `Where its traffic goes, ${props.family.family}, in percent of all`;
  const both = (way?: Way) =>
    way ? `planned ${percent(way.planned)}, measured ${percent(way.measured)}` : '–';
  if (zones.length <= zonesInMatrix) {
    return (
      <DataTable
        caption={caption}
        columns={['From zone', ...zones.map(zone => `to ${place(zone)}`)]}
        rows={zones.map(from => [place(from), ...zones.map(to => both(ways.get(from)?.get(to)))])}
      />
    );
  }
  const list = Array.from(ways).flatMap(([from, of]) =>
    Array.from(of).map(([to, way]) => ({ from, to, way }))
  );
  const size = (way: Way) => Math.max(way.planned ?? 0, way.measured ?? 0);
  list.sort((a, b) => size(b.way) - size(a.way));
  return (
    <DataTable
      caption={`${caption}: the largest ${Math.min(waysShown, list.length)} of ${list.length}`}
      columns={['From zone', 'To zone', 'Planned', 'Measured']}
      rows={list
        .slice(0, waysShown)
        .map(({ from, to, way }) => [
          place(from),
          place(to),
          percent(way.planned),
          percent(way.measured),
        ])}
    />
  );
}

function Endpoints(props: { family: FamilyView }) {
  const zones = props.family.endpointsByZone ?? [];
  return (
    <DataTable
      caption={`Ready endpoints by zone, ${props.family.family}`}
      columns={['Zone', 'Endpoints', 'Nodes', 'Which']}
      rows={zones.map(zone => [
        place(zone.zone),
        zone.number,
        zone.nodes,
        few((zone.endpoints ?? []).map(e => (e.pod ? `${e.address} (${e.pod})` : e.address))) +
          (zone.more ? ` and ${zone.more} that are not listed` : ''),
      ])}
    />
  );
}

function HandOver(props: { view: ServiceView }) {
  const of = props.view.handOver;
  return (
    <>
      <DataTable
        caption="The hand-over to vicinity-proxy by zone"
        columns={['Zone', 'Nodes', 'Ready']}
        rows={(of.zones ?? []).map(zone => [place(zone.zone), zone.nodes, zone.ready])}
      />
      <Sentences
        title="What holds up the hand-over"
        of={[
          of.missing?.length ? `Nodes that are not ready for it: ${few(of.missing)}.` : undefined,
          of.down?.length ? `Nodes that are down, and not waited for: ${few(of.down)}.` : undefined,
          ...Object.entries(of.failures ?? {}).map(([node, why]) => `${node}: ${why}`),
        ]}
      />
    </>
  );
}

/** The sentence about what was measured. */
function measuredText(view: ServiceView): string {
  const { measured, traffic } = view;
  if (measured.off) {
    return `not measured: ${measured.off}`;
  }
  if (!measured.seconds) {
    return 'not measured yet';
  }
  const over = `over ${Math.round(measured.seconds)} s, of connections through vicinity-proxy`;
  if (traffic?.inZoneConnectionsPercent === undefined) {
    return `none ${over}`;
  }
  return `${percent(traffic.inZoneConnectionsPercent)} ${over}`;
}

export function ServiceDetails(props: { view: ServiceView }) {
  const { view } = props;
  const of = view.explanation;
  if (!of) {
    return null;
  }
  const families = of.families ?? [];
  const named = (text: string | undefined, family: string) =>
    text && families.length > 1 ? `${family}: ${text}` : text;
  const joined = (texts: (string | undefined)[]) => texts.filter(Boolean).join('; ');
  return (
    <>
      <Facts
        facts={[
          ['Asks for', of.asksFor || 'nothing'],
          ['Source', of.source],
          ['Outcome', joined(families.map(f => named(f.state || 'nothing asked for', f.family)))],
          ['Why', joined([of.leftAlone, of.noPlan, ...families.map(f => named(f.why, f.family))])],
          ['Condition', of.condition && `${of.condition.reason}: ${of.condition.message}`],
          [
            'In-zone traffic planned',
            joined(families.map(f => named(f.expected && percent(f.expected.inZone), f.family))),
          ],
          [
            'In-zone traffic planned until vicinity-proxy serves it',
            joined(
              (of.meanwhile?.families ?? []).map(f =>
                named(f.expected && percent(f.expected.inZone), f.family)
              )
            ),
          ],
          ['In-zone traffic measured', measuredText(view)],
          [
            'Delivered by',
            of.headless
              ? 'DNS'
              : deliveryWord(of.delivery) + (of.undelivered ? ', not in force' : ''),
          ],
          [
            'Written',
            of.written === undefined
              ? undefined
              : of.written
              ? 'yes'
              : `not all: ${count(of.pending?.length ?? 0, 'thing is', 'things are')} missing`,
          ],
          ['Served by', handOverWord(view.handOver.state)],
        ]}
      />
      <Sentences title="What to do" of={of.next ?? []} />
      <Sentences title="Warnings" of={of.warnings ?? []} />
      {(view.families ?? []).map(family => (
        <div key={family.family}>
          <Matrix family={family} view={view} />
          <Endpoints family={family} />
        </div>
      ))}
      <HandOver view={view} />
      <Sentences title="Not known" of={of.notKnown ?? []} />
    </>
  );
}

export function ServiceSection(props: { namespace: string; name: string; uid?: string }) {
  const path = `/services/${encodeURIComponent(props.namespace)}/${encodeURIComponent(props.name)}`;
  const followed = useView<ServiceView>(path, 10);
  return (
    <Section followed={followed} uid={props.uid} uidOf={view => view.uid}>
      {view => <ServiceDetails view={view} />}
    </Section>
  );
}
