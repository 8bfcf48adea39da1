import { About } from './api.gen';

/** A console that a user has named. */
export interface Connection {
  /** Its origin. */
  base: string;
  token: string;
}

/** What the console answers. */
export interface Answer<View> {
  about: About;
  view: View;
}

export type Trouble = 'unset' | 'unreachable' | 'refused' | 'failed' | 'elsewhere';

/** Why there is no answer. */
export class ConsoleError extends Error {
  constructor(readonly trouble: Trouble, message: string) {
    super(message);
  }
}

const thisMachine = ['localhost', '127.0.0.1', '[::1]'];

/** Reads the address that a console has printed. The token goes to no other machine. */
export function readAddress(text: string): Connection {
  const refused = (why: string) =>
    new ConsoleError(
      'unset',
      `${why} Paste the whole address that "vicinity console" prints, such as http://127.0.0.1:8480/?token=….`
    );
  let address: URL;
  try {
    address = new URL(text.trim());
  } catch {
    throw refused('This is no address.');
  }
  if (address.protocol !== 'http:' || !thisMachine.includes(address.hostname)) {
    throw refused('The address must begin with http:// and be of this machine.');
  }
  const token = address.searchParams.get('token');
  if (!token) {
    throw refused('The address has no token.');
  }
  return { base: address.origin, token };
}

/** How long an answer may take, in milliseconds. The console gives up before. */
const patience = 30_000;

/** Asks the console for a view. */
export async function ask<View>(
  to: Connection,
  path: string,
  signal: AbortSignal
): Promise<Answer<View>> {
  let response: Response;
  let text: string;
  const gaveUp = new AbortController();
  const giveUp = () => gaveUp.abort();
  const timer = setTimeout(giveUp, patience);
  signal.addEventListener('abort', giveUp);
  try {
    response = await fetch(`${to.base}/api/v1${path}`, {
      headers: { Authorization: `Bearer ${to.token}` },
      credentials: 'omit',
      cache: 'no-store',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
      signal: gaveUp.signal,
    });
    text = await response.text();
  } catch {
    throw new ConsoleError('unreachable', `No console answers at ${to.base}.`);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
  }
  if (response.status === 403) {
    throw new ConsoleError('refused', `The console at ${to.base} refuses the token.`);
  }
  let said: Partial<Answer<View>> & { error?: string };
  try {
    said = JSON.parse(text);
  } catch {
    said = {};
  }
  if (!response.ok || !said?.about || !said.view) {
    const why = said?.error ?? `it answers ${response.status} and not what a console does`;
    throw new ConsoleError('failed', `The console at ${to.base}: ${why}.`);
  }
  return { about: said.about, view: said.view };
}
