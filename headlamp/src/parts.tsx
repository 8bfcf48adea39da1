import { SectionBox } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import Table from '@mui/material/Table';
import TableBody from '@mui/material/TableBody';
import TableCell from '@mui/material/TableCell';
import TableContainer from '@mui/material/TableContainer';
import TableHead from '@mui/material/TableHead';
import TableRow from '@mui/material/TableRow';
import { ReactNode } from 'react';
import { About } from './api.gen';
import { ConsoleError } from './connection';
import { Followed } from './useView';
import { when } from './words';

type Cell = string | number;

/** A table whose first column names its rows. */
export function DataTable(props: { caption: string; columns: string[]; rows: Cell[][] }) {
  if (props.rows.length === 0) {
    return null;
  }
  return (
    <TableContainer>
      <Table size="small">
        <caption style={{ captionSide: 'top' }}>{props.caption}</caption>
        <TableHead>
          <TableRow>
            {props.columns.map(column => (
              <TableCell key={column} component="th" scope="col">
                {column}
              </TableCell>
            ))}
          </TableRow>
        </TableHead>
        <TableBody>
          {props.rows.map((row, at) => (
            <TableRow key={at}>
              {row.map((cell, column) =>
                column === 0 ? (
                  <TableCell key={column} component="th" scope="row">
                    {cell}
                  </TableCell>
                ) : (
                  <TableCell key={column}>{cell}</TableCell>
                )
              )}
            </TableRow>
          ))}
        </TableBody>
      </Table>
    </TableContainer>
  );
}

/** Names with values. Those without a value are left out. */
export function Facts(props: { facts: [name: string, value: string | undefined][] }) {
  return (
    <dl>
      {props.facts
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <div key={name}>
            <dt style={{ fontWeight: 'bold' }}>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** Sentences under a heading, each once. */
export function Sentences(props: { title: string; of: (string | undefined)[] }) {
  const sentences = Array.from(new Set(props.of.filter(Boolean)));
  if (sentences.length === 0) {
    return null;
  }
  return (
    <>
      <h3>{props.title}</h3>
      <ul>
        {sentences.map(sentence => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </>
  );
}

/** How to start a console that this page may read. */
export function Command() {
  const origin = window.location.origin;
  if (!/^https?:/.test(origin)) {
    return (
      <p>
        This Headlamp is no page of a web server, so no console can allow it. Open Headlamp in a
        browser.
      </p>
    );
  }
  return (
    <p>
      Run <code>{`vicinity console --port 8480 --allow-origin ${origin}`}</code> on this machine,
      and paste the address that it prints in Settings, Plugins, vicinity.
    </p>
  );
}

/** Why there is nothing to see, and what to do. */
export function Problem(props: { error: ConsoleError }) {
  const { trouble, message } = props.error;
  return (
    <div role="status">
      <p>{message}</p>
      {trouble === 'unreachable' && (
        <p>It does not run, it has another port, or it does not allow pages of this Headlamp.</p>
      )}
      {trouble === 'refused' && <p>Each start of the console has a new token.</p>}
      {trouble !== 'failed' && trouble !== 'elsewhere' && <Command />}
    </div>
  );
}

/** What is missing in an answer. */
function Missing(props: { about: About }) {
  const { about } = props;
  return (
    <Sentences
      title="Not known"
      of={[
        about.offlineSince && `The cluster has not answered since ${when(about.offlineSince)}.`,
        about.waiting?.length ? `Still being read: ${about.waiting.join(', ')}.` : undefined,
        ...(about.notKnown ?? []),
      ]}
    />
  );
}

/** A section with an answer, or with the reason why there is none. */
export function Section<View>(props: {
  followed: Followed<View>;
  /** The UID of the object in Headlamp, and that of the one which the console has. */
  uid: string | undefined;
  uidOf: (view: View) => string | undefined;
  children: (view: View) => ReactNode;
}) {
  const { answer, error } = props.followed;
  const theirs = answer && props.uidOf(answer.view);
  let body: ReactNode = null;
  if (answer && theirs && theirs !== props.uid) {
    const text = `The console reads the cluster ${answer.about.server}, where this is another object. Run a console for this cluster.`;
    body = <Problem error={new ConsoleError('elsewhere', text)} />;
  } else if (answer) {
    body = (
      <>
        {props.children(answer.view)}
        <Missing about={answer.about} />
      </>
    );
  }
  return (
    <SectionBox title="Vicinity">
      {error && <Problem error={error} />}
      {!answer && !error && <p role="status">The console is asked…</p>}
      {body}
    </SectionBox>
  );
}
