import { vi } from 'vitest';
import { NamesView, NodeView, PodView, ServiceView } from './api.gen';
import { Answer } from './connection';
import down from './examples/down.json';
import handover from './examples/handover.json';
import headless from './examples/headless.json';
import names from './examples/names.json';
import node from './examples/node.json';
import pod from './examples/pod.json';
import service from './examples/service.json';

/** What a console has answered. The compiler holds it to the types of the console. */
export const examples: {
  service: Answer<ServiceView>;
  handover: Answer<ServiceView>;
  headless: Answer<ServiceView>;
  node: Answer<NodeView>;
  down: Answer<NodeView>;
  pod: Answer<PodView>;
  names: Answer<NamesView>;
} = { service, handover, headless, node, down, pod, names };

export const hostile = `</script><script>alert(1)</script><img src=x onerror=alert(1)>"'{{.}}`;

/** The same with a hostile text in all texts and names. */
export function spoiled<T>(value: T): T {
  if (typeof value === 'string') {
    return (value + hostile) as T;
  }
  if (Array.isArray(value)) {
    return value.map(spoiled) as T;
  }
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, spoiled(of)])) as T;
  }
  return value;
}

/** Has the console answer: by path, or the status and text of an error. */
export function answers(byPath: (path: string) => unknown, status = 200) {
  const asked = vi.fn(async (url: string, options: RequestInit) => {
    const { pathname, search } = new URL(url);
    const said = byPath(pathname.replace('/api/v1', '') + search);
    const text = typeof said === 'string' ? said : JSON.stringify(said);
    return { url, options, ok: status === 200, status, text: async () => text };
  });
  vi.stubGlobal('fetch', asked);
  return asked;
}
