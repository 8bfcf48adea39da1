import { NodeView } from './api.gen';
import { DataTable, Facts, Section, Sentences } from './parts';
import { useView } from './useView';
import { count, percent, place, proxyWord, when } from './words';

export function NodeDetails(props: { view: NodeView }) {
  const { node, zone } = props.view;
  const budgets = props.view.budgets ?? [];
  return (
    <>
      <Facts
        facts={[
          ['Zone', place(node.zone)],
          ['Region', place(node.region)],
          [
            'Counts for its zone',
            node.counts
              ? `yes: ${percent(node.traffic)} of all traffic is expected from it`
              : 'no: no traffic is expected from it',
          ],
          ['Not ready since', node.ready ? undefined : when(node.notReadySince ?? '')],
          ['Cordoned', node.cordoned ? 'yes: no new pod comes to it' : undefined],
          ['vicinity-proxy', proxyWord(node.proxy)],
          ['Hints that its kube-proxy ignores', node.hints],
          [
            'All of its zone',
            `${count(zone.nodes, 'node', 'nodes')}, ${zone.ready} ready, ${
              zone.counted
            } counted: ` +
              (zone.counted > 0
                ? `${percent(zone.traffic)} of all traffic is expected from the zone`
                : 'the zone does not count'),
          ],
          [
            'vicinity-proxy in its zone',
            props.view.knowsProxies ? `lives on ${zone.proxies} of ${zone.nodes}` : undefined,
          ],
        ]}
      />
      <Sentences
        title="Faults"
        of={[
          node.failure &&
            `Packets do not come through the rules of vicinity-proxy: ${node.failure}`,
        ]}
      />
      <DataTable
        caption="Budgets that have a domain with the node"
        columns={[
          'Budget',
          'Domain',
          'Group',
          'Expected',
          'Healthy',
          'Must stay',
          'May go',
          'State',
        ]}
        rows={budgets.flatMap(budget =>
          (budget.states ?? []).map(state => [
            `${budget.namespace}/${budget.name}`,
            budget.keys ? `${budget.keys.join(', ')}: ${budget.domain}` : 'all of its nodes',
            state.group || '–',
            state.expected,
            state.healthy,
            state.desired,
            state.allowed,
            [
              budget.blocking && 'lets no pod go',
              state.disturbed && 'disturbed',
              !budget.current && 'older than the spec',
            ]
              .filter(Boolean)
              .join(', ') || 'open',
          ])
        )}
      />
      <Sentences
        title="Left out"
        of={[
          props.view.moreBudgets
            ? `${count(props.view.moreBudgets, 'budget', 'budgets')} more, which let more pods go`
            : undefined,
        ]}
      />
    </>
  );
}

export function NodeSection(props: { name: string; uid?: string }) {
  const followed = useView<NodeView>(`/nodes/${encodeURIComponent(props.name)}`, 10);
  return (
    <Section followed={followed} uid={props.uid} uidOf={view => view.uid}>
      {view => <NodeDetails view={view} />}
    </Section>
  );
}
