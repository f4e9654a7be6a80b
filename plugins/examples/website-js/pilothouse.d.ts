// The types of pilothouse.js. wit/plugin.wit and docs/contract.md say what each member means.

/** A Kubernetes object. */
export interface KubernetesObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  [member: string]: any;
}

export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  generation?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  [member: string]: any;
}

/** A primary with its own type of spec. */
export interface Primary<Spec> extends KubernetesObject {
  spec: Spec;
}

/** A kind in one version; the core group is "". */
export interface Kind {
  group: string;
  version: string;
  kind: string;
}

/** What the host calls the plugin with. */
export interface Request<Object extends KubernetesObject = KubernetesObject> {
  object: Object;
  configuration: any;
  /** Failures in a row before this call. */
  attempt: number;
}

/** The same before it is read. */
export interface RawRequest {
  object: string;
  configuration: string;
  attempt: number;
}

/** The host's cache and clock. Each read is a dependency: when it would answer otherwise, the object is reconciled again. */
export interface Cluster {
  get(kind: Kind, namespace: string | null, name: string): KubernetesObject | null;
  list(kind: Kind, options?: ListOptions): KubernetesObject[];
  /** Milliseconds since 1970, rounded down to a multiple of `granularity`. */
  now(granularity: number): number;
  /** Whether a moment, in milliseconds since 1970, has come. */
  reached(moment: number): boolean;
  log(level: "trace" | "debug" | "info" | "warn" | "error", message: string, fields?: Record<string, string>): void;
}

export interface ListOptions {
  namespace?: string;
  labelSelector?: string;
  fieldSelector?: [path: string, value: string][];
  limit?: number;
}

export interface Condition {
  type: string;
  status: "true" | "false" | "unknown";
  reason: string;
  message: string;
}

export interface Event {
  type: "normal" | "warning";
  reason: string;
  message: string;
}

/** What should exist. What was desired before and is not here any more is deleted. */
export interface Outcome {
  /** Objects that belong to the primary; null and undefined are left out, for children that are optional. */
  owned?: (KubernetesObject | null | undefined)[];
  /** Fields in objects of others. */
  contributed?: KubernetesObject[];
  status?: object;
  conditions?: Condition[];
  events?: Event[];
  /** Milliseconds after which the object is reconciled again in any case. */
  requeueAfter?: number;
}

export interface Controller<Object extends KubernetesObject = any> {
  name: string;
  kind: Kind;
  /** The fields of the primary that `reconcile` sees beside its metadata. */
  fields?: string[];
  touches?: object[];
  reconcile(request: Request<Object>, cluster: Cluster): Outcome;
  [member: string]: any;
}

/** What wit/manifest.schema.json describes, with the functions of the controllers. */
export interface Plugin {
  name: string;
  version: string;
  description?: string;
  crds?: string[];
  controllers: Controller[];
  configurationSchema?: object;
}

/** The interfaces that the component imports. */
export interface Imports {
  cluster: any;
  clock: any;
  log: any;
}

/** A failure that an author throws. Any other error is a bug of the plugin: it is logged with its stack. */
export class Failure extends Error {
  /** Retried with back-off. */
  static transient(message: string): Failure;
  /** Retried when the object, the configuration or something that was read changes. */
  static permanent(message: string): Failure;
  readonly kind: "transient" | "permanent";
}

/** The interfaces that a component exports. */
export function plugin(plugin: Plugin, imports: Imports): { manifest: any; reconciler: any };
