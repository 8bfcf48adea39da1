import { useEffect, useState } from 'react';
import { Answer, ask, ConsoleError, readAddress } from './connection';
import { useKept } from './kept';

export interface Followed<View> {
  answer?: Answer<View>;
  /** Why there is no newer answer. */
  error?: ConsoleError;
}

/** Follows a view while the page is in front. Without a path nothing is asked. */
export function useView<View>(path: string, everySeconds: number): Followed<View> {
  const address = useKept()?.address ?? '';
  const asked = `${address} ${path}`;
  const [followed, setFollowed] = useState<Followed<View> & { asked?: string }>({});

  useEffect(() => {
    if (!path) {
      return;
    }
    const ended = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    async function next() {
      if (!document.hidden) {
        let found: Followed<View>;
        try {
          if (!address) {
            throw new ConsoleError('unset', 'No console is connected.');
          }
          found = { answer: await ask<View>(readAddress(address), path, ended.signal) };
        } catch (error) {
          found = { error: error as ConsoleError };
        }
        if (ended.signal.aborted) {
          return;
        }
        setFollowed(before => ({
          answer: before.asked === asked ? before.answer : undefined,
          ...found,
          asked,
        }));
      }
      timer = setTimeout(next, everySeconds * 1000);
    }
    next();
    return () => {
      ended.abort();
      clearTimeout(timer);
    };
  }, [address, path, asked, everySeconds]);

  return followed.asked === asked ? followed : {};
}
