import { useId, useState } from 'react';
import { BudgetMeasure, NameExplanation, NamesView, PodExplanation, PodView } from './api.gen';
import { DataTable, Facts, Problem, Section, Sentences } from './parts';
import { useView } from './useView';
import { verdictWord, when } from './words';

function measure(budget: string, of: BudgetMeasure, where: string) {
  return [
    budget,
    [where, of.group].filter(Boolean).join(', '),
    of.expected,
    of.healthy,
    of.missing,
    of.desired ?? 'no limit',
    of.allowed ?? 'no limit',
  ];
}

export function PodDetails(props: { of: PodExplanation }) {
  const { of } = props;
  const budgets = of.budgets ?? [];
  return (
    <>
      <Facts
        facts={[
          ['Eviction', verdictWord(of.verdict)],
          ['Why', of.why],
          ['Since', of.since && when(of.since)],
          ['Until', of.until && when(of.until)],
          ['State', of.state],
          ['Budgets are not asked', of.unenforced],
        ]}
      />
      <Sentences title="What to do" of={of.next ?? []} />
      <DataTable
        caption="Numbers of its TopologyDisruptionBudgets"
        columns={['Budget', 'Domain', 'Expected', 'Healthy', 'Missing', 'Must stay', 'May go']}
        rows={budgets.flatMap(budget => [
          ...(budget.domain
            ? [measure(budget.name, budget.domain, budget.domain.name || 'the only one')]
            : []),
          ...(budget.total ? [measure(budget.name, budget.total, 'all together')] : []),
        ])}
      />
      {budgets.map(budget => (
        <Sentences
          key={budget.name}
          title={`Why budget ${budget.name} answers so`}
          of={[
            ...(budget.why ?? []),
            ...(budget.wrong ?? []).map(condition => `${condition.type}: ${condition.message}`),
          ]}
        />
      ))}
      <DataTable
        caption="Its PodDisruptionBudgets"
        columns={['Budget', 'Answer', 'Why']}
        rows={(of.podDisruptionBudgets ?? []).map(pdb => [pdb.name, pdb.verdict, pdb.why])}
      />
    </>
  );
}

export function NameDetails(props: { of: NameExplanation }) {
  const { of } = props;
  const answers = [...(of.answers ?? []), ...(of.target?.answers ?? [])];
  return (
    <>
      <DataTable
        caption={`Addresses that the pod gets for ${of.name}`}
        columns={['Address', 'Type', 'Zone', 'Node']}
        rows={answers.flatMap(answer =>
          (answer.records ?? []).map(record => [
            record.address || record.target || '–',
            record.type,
            record.zone || '–',
            record.node || '–',
          ])
        )}
      />
      <Sentences
        title="Why these"
        of={[...answers.map(answer => `${answer.type}: ${answer.why}`), ...(of.why ?? [])]}
      />
      <Sentences title="Warnings" of={of.warnings ?? []} />
      <Sentences title="What to do" of={of.next ?? []} />
      <Sentences title="Not known" of={of.notKnown ?? []} />
    </>
  );
}

function Names(props: { headless: string[]; pod: string; chosenFirst: string }) {
  const [chosen, setChosen] = useState(props.chosenFirst);
  const id = useId();
  const query = new URLSearchParams({ name: chosen, from: props.pod });
  const { answer, error } = useView<NamesView>(chosen && `/names?${query}`, 30);
  return (
    <>
      <h3>Headless names</h3>
      <p>
        <label htmlFor={id}>Headless Service that the pod asks for: </label>
        <select id={id} value={chosen} onChange={event => setChosen(event.target.value)}>
          <option value="">none</option>
          {props.headless.map(name => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </p>
      <div aria-live="polite">
        {error && <Problem error={error} />}
        {chosen && !answer && !error && <p>The console is asked…</p>}
        {answer?.view.problem && <p>{answer.view.problem}</p>}
        {answer?.view.explanation && <NameDetails of={answer.view.explanation} />}
      </div>
    </>
  );
}

export function PodSection(props: { namespace: string; name: string; uid?: string }) {
  const path = `/pods/${encodeURIComponent(props.namespace)}/${encodeURIComponent(props.name)}`;
  const followed = useView<PodView>(path, 30);
  return (
    <Section followed={followed} uid={props.uid} uidOf={view => view.explanation?.uid}>
      {view => {
        const headless = view.headless ?? [];
        return (
          <>
            {view.problem && <p role="status">{view.problem}</p>}
            {view.explanation && <PodDetails of={view.explanation} />}
            {headless.length > 0 && (
              <Names
                headless={headless}
                pod={`${props.namespace}/${props.name}`}
                chosenFirst={headless[0].endsWith(`.${props.namespace}`) ? headless[0] : ''}
              />
            )}
          </>
        );
      }}
    </Section>
  );
}
