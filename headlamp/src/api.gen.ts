// Generated from the types of the console by make generate.

export interface About {
  server: string;
  namespace?: string;
  at: string;
  offlineSince?: string;
  waiting?: string[];
  notKnown?: string[];
}

export interface Figures {
  inZone: number;
  sameNode?: number;
  maxOverload: number;
  unreached?: number;
}

export interface InterimFamily {
  family: string;
  state: string;
  rule?: string;
  why?: string;
  expected?: Figures;
  endpoints?: Record<string, string[]>;
}

export interface Interim {
  undelivered?: boolean;
  notes?: string[];
  families: InterimFamily[] | null;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  since: string;
}

export interface Zone {
  zone: string;
  region?: string;
  capacity: number;
  traffic: number;
  endpoints: number;
  expected: number;
}

export interface Member {
  zone: string;
  endpoints: number;
}

export interface Consumer {
  zone: string;
  weight: number;
}

export interface Group {
  members: Member[] | null;
  consumers: Consumer[] | null;
  load: number;
}

export interface Skip {
  key: string;
  domain: string;
  zone?: string;
  endpoints: number;
  traffic: number;
  load: number;
  why: string;
}

export interface Groups {
  algorithm: string;
  groups: Group[] | null;
  skipped?: Skip[];
}

export interface Algorithm {
  algorithm: string;
  asked?: boolean;
  inZone: number;
  maxOverload: number;
  slices: number;
  total: number;
  state: string;
  rule: string;
  decidedBy: string;
}

export interface StockPort {
  name: string;
  protocol: string;
}

export interface StockZone {
  zone: string;
  nodes?: number;
  mode: string;
  why?: string;
  uses: Record<string, number> | null;
}

export interface Stock {
  ports: StockPort[] | null;
  expected?: Figures;
  zones: StockZone[] | null;
}

export interface Family {
  family: string;
  decided: boolean;
  state: string;
  rule?: string;
  why?: string;
  capacity?: string;
  expected?: Figures;
  zones?: Zone[];
  plan?: Groups;
  endpoints?: Record<string, string[]>;
  algorithms?: Algorithm[];
  stockProxies: Stock[] | null;
}

export interface Limit {
  name: string;
  text: string;
  link: string;
}

export interface Explanation {
  namespace: string;
  service: string;
  asksFor: string;
  approach: string;
  source?: string;
  policy?: string;
  clusterPolicy?: string;
  tiers?: string[];
  upstream?: boolean;
  headless?: boolean;
  delivery: string;
  undelivered?: boolean;
  leftAlone?: string;
  groups: number;
  meanwhile?: Interim;
  condition?: Condition;
  noPlan?: string;
  families: Family[] | null;
  noStockProxy?: string;
  written?: boolean;
  pending?: string[];
  held?: Record<string, string[]>;
  warnings?: string[];
  limits?: Limit[];
  notKnown?: string[];
  next?: string[];
}

export interface Flow {
  from: string;
  to: string;
  percent: number;
}

export interface ServedView {
  clients: string[] | null;
  by: string;
}

export interface EndpointView {
  address: string;
  node?: string;
  pod?: string;
  usedBy?: string[];
}

export interface EndpointsView {
  zone: string;
  number: number;
  nodes: number;
  endpoints: EndpointView[] | null;
  more?: number;
}

export interface FamilyView {
  family: string;
  flows: Flow[] | null;
  served?: ServedView[];
  endpointsByZone: EndpointsView[] | null;
}

export interface Route {
  from: string;
  to: string;
  connections: number;
  requestBytes: number;
  replyBytes: number;
}

export interface ServiceTraffic {
  namespace?: string;
  service?: string;
  connections: number;
  inZoneConnectionsPercent?: number;
  bytes: number;
  inZoneBytesPercent?: number;
  crossingBytes: number;
  costPerMonth?: number;
  routes: Route[] | null;
}

export interface MeasuredOver {
  seconds?: number;
  proxies?: number;
  off?: string;
}

export interface HandOverZone {
  zone: string;
  nodes: number;
  ready: number;
}

export interface HandOver {
  state: string;
  zones?: HandOverZone[];
  missing?: string[];
  down?: string[];
  failures?: Record<string, string>;
}

export interface ServiceView {
  uid: string;
  explanation: Explanation | null;
  families: FamilyView[] | null;
  traffic?: ServiceTraffic;
  measured: MeasuredOver;
  handOver: HandOver;
  policy?: string;
}

export interface NodePlace {
  node: string;
  zone: string;
  region: string;
  ready: boolean;
  notReadySince?: string;
  cordoned?: boolean;
  counts: boolean;
  traffic: number;
  cpu: number;
  proxy: string;
  failure?: string;
  hints?: string;
}

export interface ZonePlace {
  zone: string;
  region: string;
  nodes: number;
  ready: number;
  counted: number;
  traffic: number;
  cpu: number;
  proxies: number;
  failing: number;
  ignoreHints: number;
}

export interface DomainStatus {
  domain?: string;
  group?: string;
  expected: number;
  healthy: number;
  desired: number;
  allowed: number;
  disturbed?: boolean;
}

export interface NodeBudget {
  namespace: string;
  name: string;
  keys?: string[];
  domain: string;
  states: DomainStatus[] | null;
  current: boolean;
  blocking: boolean;
}

export interface NodeView {
  uid: string;
  node: NodePlace;
  zone: ZonePlace;
  knowsProxies: boolean;
  budgets: NodeBudget[] | null;
  moreBudgets?: number;
}

export interface BudgetMeasure {
  group?: string;
  name?: string;
  expected: number;
  healthy: number;
  missing: number;
  desired?: number;
  allowed?: number;
}

export interface DownPod {
  name: string;
  why: string;
  since?: string;
}

export interface V1Condition {
  type: string;
  status: string;
  observedGeneration?: number;
  lastTransitionTime: string;
  reason: string;
  message: string;
}

export interface BudgetExplanation {
  name: string;
  verdict: string;
  rule?: string;
  why: string[] | null;
  domain?: BudgetMeasure;
  total?: BudgetMeasure;
  down?: DownPod[];
  since?: string;
  until?: string;
  wrong?: V1Condition[];
}

export interface PDBExplanation {
  name: string;
  verdict: string;
  why: string;
  since?: string;
}

export interface PodExplanation {
  namespace: string;
  pod: string;
  uid?: string;
  node?: string;
  state: string;
  verdict: string;
  why: string;
  since?: string;
  until?: string;
  unenforced?: string;
  budgets?: BudgetExplanation[];
  podDisruptionBudgets?: PDBExplanation[];
  notKnown?: string[];
  next?: string[];
}

export interface PodView {
  explanation?: PodExplanation;
  problem?: string;
  headless: string[] | null;
}

export interface NameClient {
  pod?: string;
  address: string;
  located: string;
  locator?: string;
  node?: string;
  zone?: string;
}

export interface NameRecord {
  name: string;
  type: string;
  address?: string;
  target?: string;
  port?: number;
  zone?: string;
  node?: string;
}

export interface NameAnswer {
  type: string;
  result: string;
  why: string;
  of: number;
  tier?: string;
  records: NameRecord[] | null;
  additional?: NameRecord[];
}

export interface NameKey {
  key: string;
  value?: string;
}

export interface NameExplanation {
  name: string;
  namespace?: string;
  service?: string;
  client: NameClient;
  rule: string;
  answers: NameAnswer[] | null;
  keys?: NameKey[];
  groups?: number;
  groupsUsed?: number;
  asksFor?: string;
  source?: string;
  why?: string[];
  warnings?: string[];
  notKnown?: string[];
  next?: string[];
  target?: NameExplanation;
}

export interface NamesView {
  name: string;
  from: string;
  address?: string;
  explanation?: NameExplanation;
  problem?: string;
}
