/** A percentage for people, with a dash for what is not known. */
export function percent(value: number | undefined): string {
  if (value === undefined) {
    return '–';
  }
  if (value > 0 && value < 0.1) {
    return '<0.1 %';
  }
  return `${value.toFixed(1).replace(/\.0$/, '')} %`;
}

/** A time for people. */
export function when(at: string): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime()) || time.getTime() === 0) {
    return 'a time that is not known';
  }
  return `${time.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** The name of a zone or a region, which nodes may lack. */
export function place(name: string): string {
  return name.trim() || 'none';
}

export function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** The first of some names, and how many more there are. */
export function few(names: string[], most = 10): string {
  const more = names.length - most;
  return names.slice(0, most).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** The word for a value. One that a newer console has stands for itself. */
function word(words: Record<string, string>): (value: string) => string {
  return value => (Object.hasOwn(words, value) ? words[value] : value);
}

export const handOverWord = word({
  none: 'kube-proxy',
  writing: 'kube-proxy, until groups are written',
  waiting: 'kube-proxy, until all nodes are ready',
  done: 'vicinity-proxy',
  returning: 'vicinity-proxy, on the way back to kube-proxy',
  other: 'neither kube-proxy nor vicinity-proxy',
});

export const deliveryWord = word({
  Hints: 'hints in EndpointSlices',
  Groups: 'EndpointGroups',
  None: 'nothing is delivered',
});

export const proxyWord = word({
  lives: 'lives',
  silent: 'is silent: it does not renew its Lease',
  none: 'is not there',
  unknown: 'is not known: Leases may not be read',
});

export const verdictWord = word({
  allowed: 'It may be evicted now.',
  refused: 'It may not be evicted now.',
  fails: 'Its eviction fails.',
  unknown: 'Whether it may be evicted is not known.',
});
