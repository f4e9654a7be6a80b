// The types of pilothouse.js. wit/plugin.wit says what each member means, and so does
// docs/contract.md of Pilothouse.

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

/** Why an object is reviewed. The host does not ask about deletions today. */
export type Phase = "create" | "update" | "delete" | "reconcile";

/** What the host calls a defaulter and a validator with. */
export interface Review<Object extends KubernetesObject = KubernetesObject> {
  phase: Phase;
  /** Null only when it is deleted. */
  object: Object;
  /** Null unless it is updated or deleted. */
  oldObject: Object | null;
  configuration: any;
  /** Null before a reconcile: nobody makes a request. */
  userInfo: UserInfo | null;
  /** Whether nothing will be stored. */
  dryRun: boolean;
}

export interface UserInfo {
  username: string;
  groups: string[];
}

/** The same before it is read. */
export interface RawReview {
  phase: Phase;
  kind: Kind;
  object?: string | null;
  oldObject?: string | null;
  configuration: string;
  userInfo?: UserInfo | null;
  dryRun: boolean;
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
  status: "True" | "False" | "Unknown";
  reason: string;
  message: string;
}

/** Makes conditions. `Ready` is the one that `kubectl wait --for=condition=Ready` and kstatus look at. */
export const Condition: {
  isTrue(type: string, reason: string, message?: string): Condition;
  isFalse(type: string, reason: string, message?: string): Condition;
  unknown(type: string, reason: string, message?: string): Condition;
  ready(reason: string, message?: string): Condition;
  notReady(reason: string, message?: string): Condition;
};

export interface Event {
  type: "Normal" | "Warning";
  reason: string;
  message: string;
}

/** Exceptions to the life of an owned object. */
export interface Lifecycle {
  /** Created when absent, then never changed. */
  createOnly?: boolean;
  /** Left in place when it is no longer desired, and when the primary goes. */
  keep?: boolean;
  /** Deleted and created again where a changed field is immutable. */
  recreate?: boolean;
  /** Deleted and created again whenever something else is desired than before; the controller lists it in `options`. */
  replace?: boolean;
  /** What becomes of its dependents where the host deletes it; without it the host decides. Listed in `options`, too. */
  propagation?: "Background" | "Foreground" | "Orphan";
  /** Whether an object of this name that belongs to nobody is taken over. Listed in `options`, too. */
  adopt?: "Never" | "IfUnowned";
  /** Fields, such as ".spec.replicas", that are left to who else sets them. Listed in `options`, too. */
  yield?: string[];
  /** Owned objects that have to be Current before it is made or changed, and that go after it. Listed in `options`, too. */
  after?: ObjectReference[];
  /** The token with which it is made once: when it is gone, it is made again with another one only. Listed in `options`, too. */
  once?: string;
}

/** An object by its name; without a namespace in that of the primary. */
export interface ObjectReference {
  apiVersion: string;
  kind: string;
  name: string;
  namespace?: string;
}

/** An owned object with exceptions to its life; `withLifecycle` makes it. */
export class OwnedObject {
  readonly object: KubernetesObject;
  readonly lifecycle: Lifecycle;
}

/** An owned object with exceptions to its life. */
export function withLifecycle(object: KubernetesObject, lifecycle: Lifecycle): OwnedObject;

/** What should exist. What was desired before and is not here any more is deleted. */
export interface Outcome {
  /** Objects that belong to the primary; null and undefined are left out, for children that are optional. */
  owned?: (KubernetesObject | OwnedObject | null | undefined)[];
  /** Fields in objects of others. */
  contributed?: KubernetesObject[];
  status?: object;
  conditions?: Condition[];
  events?: Event[];
  /** Milliseconds after which the object is reconciled again in any case. */
  requeueAfter?: number;
}

/** A kind that is read or written, and how. */
export interface Touch {
  kind: Kind;
  /** At least one: "read" with `get` and `list`, "owned" objects, "contributed" fields in objects of others. */
  access: ("read" | "owned" | "contributed")[];
  /** The fields that are looked at beside the metadata, for example ".status.readyReplicas"; "." is everything. */
  fields?: string[];
  /** Only objects that it matches, for example "app=web,tier in (a,b),!legacy". */
  labelSelector?: string;
  /** In the primary's namespace, which is the default, or in any; objects without a namespace are in "Any". */
  scope?: "Namespace" | "Any";
  /** With "Any": only these namespaces. */
  namespaces?: string[];
  /** Only objects of these names. */
  names?: string[];
  /** Whether the plugin runs where the kind is not served: it sees nothing, and what it wants of it fails alone. */
  optional?: boolean;
}

/** Which objects are primaries; what is given must all hold. */
export interface Filter {
  /** An annotation that must be there, with any value. */
  annotation?: string;
  /** Annotations of which at least one must be there, with any value; at most 64. */
  annotations?: string[];
  labelSelector?: string;
}

/** When an API server asks the plugin before it stores a primary; what is given must all hold. */
export interface Admission {
  /** What becomes of a request when the plugin cannot be asked, or fails. */
  failurePolicy?: "Fail" | "Ignore";
  /** 1 to 30; 5 is the default. */
  timeoutSeconds?: number;
  objectSelector?: string;
  namespaceSelector?: string;
  /** In CEL, as in a webhook configuration. */
  matchConditions?: { name: string; expression: string }[];
}

export interface Controller<Object extends KubernetesObject = any> {
  name: string;
  kind: Kind;
  /** Whether the plugin runs where the kind is not served; the controller then waits for it. */
  optional?: boolean;
  /** The fields of the primary that `reconcile` sees beside its metadata. */
  fields?: string[];
  touches?: Touch[];
  /** All objects of the kind when it is absent. */
  filter?: Filter;
  reconcile(request: Request<Object>, cluster: Cluster): Outcome;
  /** The name of the finalizer, for example "example.com/website"; with it the component exports `finalizer`. */
  finalizer?: string;
  /** Called for an object that is being deleted: "done" once it may go, or what should still exist until then. */
  finalize?(request: Request<Object>, cluster: Cluster): Outcome | "done";
  /** The object with defaults filled in. The same again must change nothing. Throws what is thrown by `validate`. */
  applyDefaults?(review: Review<Object>, cluster: Cluster): Object;
  /** Warnings. Throws a FieldError, or an AggregateError of them, where the object is refused. */
  validate?(review: Review<Object>, cluster: Cluster): string[] | void;
  /** Without it, API servers ask about every primary whose CRD the plugin brings, and about no other. */
  admission?: Admission;
  /** The reason that the condition Reconciled has while it is False, for users who know such a reason. */
  failureReason?: string;
  /** The options that desired objects may have, as in ["replace"]. A host that does not know one of them refuses the plugin. */
  options?: ("replace" | "propagation" | "adopt" | "yield" | "after" | "once")[];
}

/** The manifest, with the functions of the controllers.
 * docs/reference/manifest.md of Pilothouse has all its members. */
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

/** A failure that an author throws. Any other error is a bug of the plugin: it is logged with its stack, and the call traps. */
export class Failure extends Error {
  /** Retried with back-off. */
  static transient(message: string): Failure;
  /** Retried when the object, the configuration or something that was read changes. */
  static permanent(message: string): Failure;
  readonly kind: "transient" | "permanent";
}

export type FieldErrorKind = "required" | "duplicate" | "forbidden" | "not-found" | "invalid";

/** What is wrong with one field, for example "spec.ports[0].name"; "" is the object as a whole. The host adds path and value. */
export class FieldError extends Error {
  static required(path: string, message: string): FieldError;
  static duplicate(path: string, message: string): FieldError;
  static forbidden(path: string, message: string): FieldError;
  static notFound(path: string, message: string): FieldError;
  static invalid(path: string, message: string): FieldError;
  readonly kind: FieldErrorKind;
  readonly path: string;
}

/** Whether an object that was read belongs to this primary. */
export function isControlledBy(object: KubernetesObject | null, owner: KubernetesObject): boolean;

/** A console whose lines go to the host's log. `plugin` makes it the component's own. */
export function consoleOf(cluster: Cluster): any;

/** The interfaces that a component can export; plugin.js exports those that it has. */
export function plugin(
  plugin: Plugin,
  imports: Imports,
): { manifest: any; reconciler: any; finalizer: any; defaulter: any; validator: any };
