import './index';
import { cleanup, fireEvent, render, screen, within } from '@testing-library/react';
import { ReactElement, ReactNode } from 'react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Settings } from './Settings';
import { answers, examples, hostile, spoiled } from './testing';

const headlamp = vi.hoisted(() => ({
  address: 'http://127.0.0.1:8480/?token=the-token' as string | undefined,
  settings: [] as unknown[],
  section: (() => null) as (props: { resource: unknown }) => ReactElement | null,
}));

vi.mock('@kinvolk/headlamp-plugin/lib', () => ({
  ConfigStore: class {
    useConfig() {
      return () => ({ address: headlamp.address });
    }
    set(kept: { address: string }) {
      headlamp.address = kept.address;
    }
  },
  registerDetailsViewSection: (section: typeof headlamp.section) => {
    headlamp.section = section;
  },
  registerPluginSettings: (...given: unknown[]) => {
    headlamp.settings = given;
  },
}));

vi.mock('@kinvolk/headlamp-plugin/lib/CommonComponents', () => ({
  SectionBox: (props: { title: string; children: ReactNode }) => (
    <section aria-label={props.title}>{props.children}</section>
  ),
}));

const web = { kind: 'Service', metadata: { namespace: 'shop', name: 'web', uid: 'uid-shop-web' } };

function show(resource: unknown) {
  return render(<>{headlamp.section({ resource })}</>);
}

function metadata(name: string, namespace?: string) {
  return { name, namespace, uid: ['uid', namespace, name].filter(Boolean).join('-') };
}

/** The cells of a row of a table. */
async function row(table: RegExp, name: string) {
  const found = await screen.findByRole('table', { name: table });
  const [header] = within(found).getAllByRole('rowheader', { name });
  return Array.from(header.closest('tr')!.children).map(cell => cell.textContent);
}

function fact(name: string) {
  return screen.getByText(name).nextSibling?.textContent;
}

beforeEach(() => {
  headlamp.address = 'http://127.0.0.1:8480/?token=the-token';
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe('a Service', () => {
  it('has what is planned beside what was measured', async () => {
    const asked = answers(() => examples.service);
    show(web);
    expect(await row(/Where its traffic goes/, 'a')).toEqual([
      'a',
      'planned 13.3 %, measured 75 %',
      'planned 13.3 %, measured 25 %',
      'planned 13.3 %, measured –',
    ]);
    expect(await row(/Ready endpoints by zone/, 'a')).toEqual([
      'a',
      '2',
      '2',
      '10.0.0.1 (web-0), 10.0.0.2 (web-1)',
    ]);
    expect(fact('In-zone traffic measured')).toBe(
      '75 % over 40 s, of connections through vicinity-proxy'
    );
    expect(fact('Served by')).toBe('kube-proxy');
    expect(fact('Delivered by')).toBe('hints in EndpointSlices');
    const [url, options] = asked.mock.calls[0];
    expect(url).toBe('http://127.0.0.1:8480/api/v1/services/shop/web');
    expect(options.headers).toEqual({ Authorization: 'Bearer the-token' });
    expect(options.credentials).toBe('omit');
  });

  it('has the hand-over', async () => {
    answers(() => examples.handover);
    show({ kind: 'Service', metadata: metadata('given', 'shop') });
    expect(await row(/hand-over/, 'c')).toEqual(['c', '2', '0']);
    expect(screen.getByText('c-1: packets are lost')).toBeTruthy();
    expect(fact('Served by')).toBe('kube-proxy, until all nodes are ready');
  });

  it('says that DNS delivers what is headless', async () => {
    answers(() => examples.headless);
    show({ kind: 'Service', metadata: metadata('db', 'data') });
    await screen.findByText('Delivered by');
    expect(fact('Delivered by')).toBe('DNS');
  });

  it('lists the largest ways where there are many zones', async () => {
    const many = structuredClone(examples.service);
    many.view.families![0].flows = Array.from({ length: 60 }, (_, i) => ({
      from: `z${i}`,
      to: 'a',
      percent: i / 10,
    }));
    answers(() => many);
    show(web);
    const table = await screen.findByRole('table', { name: /the largest 50 of 62/ });
    expect(within(table).getAllByRole('rowheader')[0].textContent).toBe('a');
    expect(within(table).getAllByRole('rowheader')).toHaveLength(50);
  });

  it('is asked again, and keeps what is known when the console goes', async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    answers(() => examples.service);
    show(web);
    await screen.findByText('Served by');
    vi.stubGlobal('fetch', async () => {
      throw new TypeError('Failed to fetch');
    });
    await vi.advanceTimersByTimeAsync(11_000);
    expect(await screen.findByText('No console answers at http://127.0.0.1:8480.')).toBeTruthy();
    expect(fact('Served by')).toBe('kube-proxy');
  });
});

describe('a Node', () => {
  it('has its place, its proxy and its budgets', async () => {
    answers(() => examples.node);
    show({ kind: 'Node', metadata: metadata('a-1') });
    expect(await row(/Budgets/, 'shop/web')).toEqual([
      'shop/web',
      'topology.kubernetes.io/zone: a',
      '–',
      '2',
      '1',
      '1',
      '0',
      'lets no pod go, disturbed',
    ]);
    expect(fact('Zone')).toBe('a');
    expect(fact('Region')).toBe('north');
    expect(fact('Counts for its zone')).toBe('yes: 20 % of all traffic is expected from it');
    expect(fact('vicinity-proxy')).toBe('lives');
  });

  it('says that it does not count', async () => {
    answers(() => examples.down);
    show({ kind: 'Node', metadata: metadata('b-2') });
    await screen.findByText('Not ready since');
    expect(fact('Not ready since')).toBe('2023-11-14 22:13:20 UTC');
    expect(fact('Counts for its zone')).toBe('no: no traffic is expected from it');
    expect(fact('vicinity-proxy')).toBe('is not there');
  });
});

describe('a Pod', () => {
  const pod = { kind: 'Pod', metadata: { namespace: 'shop', name: 'web-0', uid: 'uid-web-0' } };

  it('has its eviction, its budgets and what a name gives it', async () => {
    const asked = answers(path => (path.startsWith('/names') ? examples.names : examples.pod));
    show(pod);
    expect(await row(/TopologyDisruptionBudgets/, 'web')).toEqual([
      'web',
      'a',
      '2',
      '1',
      '0',
      '1',
      '0',
    ]);
    expect(fact('Eviction')).toBe('It may not be evicted now.');
    expect(asked).toHaveBeenCalledTimes(1);
    fireEvent.change(screen.getByLabelText(/Headless Service/), { target: { value: 'db.data' } });
    expect(await row(/Addresses that the pod gets/, '10.0.0.1')).toEqual([
      '10.0.0.1',
      'A',
      'a',
      'a-1',
    ]);
    expect(asked.mock.calls[1][0]).toContain('/api/v1/names?name=db.data&from=shop%2Fweb-0');
  });

  it('says why it is not explained', async () => {
    const about = examples.pod.about;
    answers(() => ({ about, view: { problem: 'Pods may not be read', headless: [] } }));
    show(pod);
    expect(await screen.findByText('Pods may not be read')).toBeTruthy();
  });
});

describe('trouble', () => {
  const command = 'vicinity console --port 8480 --allow-origin http://localhost:3000';

  it('no console is connected', async () => {
    headlamp.address = undefined;
    const asked = answers(() => examples.service);
    show(web);
    expect(await screen.findByText('No console is connected.')).toBeTruthy();
    expect(screen.getByText(command)).toBeTruthy();
    expect(asked).not.toHaveBeenCalled();
  });

  it('no console answers', async () => {
    vi.stubGlobal('fetch', async () => {
      throw new TypeError('Failed to fetch');
    });
    show(web);
    expect(await screen.findByText('No console answers at http://127.0.0.1:8480.')).toBeTruthy();
    expect(screen.getByText(command)).toBeTruthy();
  });

  it('the token is refused', async () => {
    answers(() => 'The token is missing', 403);
    show(web);
    expect(await screen.findByText(/refuses the token/)).toBeTruthy();
    expect(screen.getByText(/has a new token/)).toBeTruthy();
  });

  it('the console says why', async () => {
    answers(() => ({ error: 'no Service "web" is in namespace "shop"' }), 404);
    show(web);
    expect(await screen.findByText(/no Service "web" is in namespace "shop"/)).toBeTruthy();
    expect(screen.queryByText(command)).toBeNull();
  });

  it.each(['<html>', '{}', 'null', '[1]'])('another program answers %s', async text => {
    answers(() => text);
    show(web);
    expect(await screen.findByText(/not what a console does/)).toBeTruthy();
  });

  it('the console reads another cluster', async () => {
    answers(() => examples.service);
    show({ kind: 'Service', metadata: { ...web.metadata, uid: 'another' } });
    expect(await screen.findByText(/reads the cluster https:\/\/cluster.test/)).toBeTruthy();
    expect(screen.queryByText('Served by')).toBeNull();
  });

  it('parts are not known', async () => {
    const parts = structuredClone(examples.service);
    parts.about.notKnown = ['Nodes may not be read.'];
    parts.about.offlineSince = '2026-01-02T03:04:05Z';
    answers(() => parts);
    show(web);
    expect(await screen.findByText('Nodes may not be read.')).toBeTruthy();
    expect(screen.getByText(/not answered since 2026-01-02 03:04:05 UTC/)).toBeTruthy();
  });
});

describe('what tenants write', () => {
  it.each([
    ['Service', examples.handover, 'given'],
    ['Service', examples.service, 'web'],
    ['Node', examples.down, 'b-2'],
    ['Pod', examples.pod, 'web-0'],
  ])('is text in a %s', async (kind, example, name) => {
    answers(path => spoiled(path.startsWith('/names') ? examples.names : example));
    const view = example.view as { uid?: string; explanation?: { uid?: string } };
    const uid = (view.uid ?? view.explanation?.uid) + hostile;
    const { container } = show({ kind, metadata: { namespace: 'shop', name, uid } });
    await screen.findAllByText(text => text.includes('onerror=alert(1)'));
    const choice = screen.queryByLabelText(/Headless Service/);
    if (choice) {
      fireEvent.change(choice, { target: { value: `db.data${hostile}` } });
      await screen.findByRole('table', { name: /Addresses/ });
    }
    expect(container.querySelector('script, img, iframe, a')).toBeNull();
    expect(container.textContent!.split('<img src=x').length).toBeGreaterThan(5);
  });
});

describe('accessibility', () => {
  it.each([
    ['Service', examples.handover, metadata('given', 'shop')],
    ['Node', examples.node, metadata('a-1')],
    ['Pod', examples.pod, { ...metadata('web-0', 'shop'), uid: 'uid-web-0' }],
  ])('the tables of a %s have captions and headers', async (kind, example, of) => {
    answers(() => example);
    show({ kind, metadata: of });
    for (const table of await screen.findAllByRole('table')) {
      expect(table.querySelector('caption')?.textContent).toBeTruthy();
      const columns = within(table).getAllByRole('columnheader');
      for (const one of within(table).getAllByRole('row').slice(1)) {
        expect(within(one).getAllByRole('rowheader')).toHaveLength(1);
        expect(one.children).toHaveLength(columns.length);
      }
    }
  });
});

describe('other objects', () => {
  it('have no section', () => {
    expect(
      headlamp.section({ resource: { kind: 'Secret', metadata: metadata('x', 'y') } })
    ).toBeNull();
    expect(headlamp.section({ resource: undefined })).toBeNull();
  });
});

describe('settings', () => {
  it('are those of the plugin', () => {
    expect(headlamp.settings).toEqual(['vicinity', Settings, false]);
  });

  async function save(address: string) {
    render(<Settings />);
    fireEvent.change(screen.getByLabelText(/Address/), { target: { value: address } });
    fireEvent.click(screen.getByRole('button', { name: 'Save and try' }));
  }

  it('keep the address, and say which cluster it is', async () => {
    const asked = answers(() => examples.node);
    await save(' http://[::1]:9/?token=t ');
    expect(await screen.findByText(/reads the cluster https:\/\/cluster.test/)).toBeTruthy();
    expect(headlamp.address).toBe('http://[::1]:9/?token=t');
    expect(asked.mock.calls[0][0]).toBe('http://[::1]:9/api/v1/cluster?per=1');
  });

  it('forget the address', async () => {
    const asked = answers(() => examples.node);
    await save('');
    expect(await screen.findByText('No console is connected.')).toBeTruthy();
    expect(headlamp.address).toBe('');
    expect(asked).not.toHaveBeenCalled();
  });

  it.each([
    ['nonsense', /no address/],
    ['http://evil.example/?token=t', /of this machine/],
    ['http://localhost.evil.example/?token=t', /of this machine/],
    ['http://127.0.0.1@evil.example/?token=t', /of this machine/],
    ['https://127.0.0.1/?token=t', /begin with http/],
    ['javascript:alert(1)//?token=t', /begin with http/],
    ['http://127.0.0.1:8480/', /no token/],
  ])('refuse %s', async (address, says) => {
    const before = headlamp.address;
    const asked = answers(() => examples.node);
    await save(address);
    expect(await screen.findByText(says)).toBeTruthy();
    expect(headlamp.address).toBe(before);
    expect(asked).not.toHaveBeenCalled();
  });
});
