// A small helper: from the contract's records to objects and back. It needs nothing but JavaScript, so that tests can load it.

/** @import { Cluster, Controller, FieldErrorKind, Imports, Kind, KubernetesObject, Lifecycle, Outcome, Plugin, RawRequest, RawReview, Review } from "./pilothouse.js" */

export class Failure extends Error {
  /** @param {"transient" | "permanent"} kind @param {string} message */
  constructor(kind, message) {
    super(message);
    this.name = "Failure";
    this.kind = kind;
  }

  /** @param {string} message */
  static transient(message) {
    return new Failure("transient", message);
  }

  /** @param {string} message */
  static permanent(message) {
    return new Failure("permanent", message);
  }
}

export class FieldError extends Error {
  /** @param {FieldErrorKind} kind @param {string} path @param {string} message */
  constructor(kind, path, message) {
    super(message);
    this.name = "FieldError";
    this.kind = kind;
    this.path = path;
  }

  /** @param {string} path @param {string} message */
  static required(path, message) {
    return new FieldError("required", path, message);
  }

  /** @param {string} path @param {string} message */
  static duplicate(path, message) {
    return new FieldError("duplicate", path, message);
  }

  /** @param {string} path @param {string} message */
  static forbidden(path, message) {
    return new FieldError("forbidden", path, message);
  }

  /** @param {string} path @param {string} message */
  static notFound(path, message) {
    return new FieldError("not-found", path, message);
  }

  /** @param {string} path @param {string} message */
  static invalid(path, message) {
    return new FieldError("invalid", path, message);
  }
}

/** A condition with a status. @param {"True" | "False" | "Unknown"} status */
function conditionOf(status) {
  return (/** @type {string} */ type, /** @type {string} */ reason, message = "") => ({ type, status, reason, message });
}

const [isTrue, isFalse, unknown] = [conditionOf("True"), conditionOf("False"), conditionOf("Unknown")];

export const Condition = {
  isTrue,
  isFalse,
  unknown,
  /** @param {string} reason @param {string} [message] */
  ready: (reason, message) => isTrue("Ready", reason, message),
  /** @param {string} reason @param {string} [message] */
  notReady: (reason, message) => isFalse("Ready", reason, message),
};

/** The exceptions to the life of an owned object. */
const LIFECYCLE = ["createOnly", "keep", "recreate", "replace", "propagation", "adopt", "yield", "after", "once"];

export class OwnedObject {
  /** @param {KubernetesObject} object @param {Lifecycle} lifecycle */
  constructor(object, lifecycle) {
    this.object = object;
    this.lifecycle = lifecycle;
  }
}

/** @param {KubernetesObject} object @param {Lifecycle} lifecycle */
export function withLifecycle(object, lifecycle) {
  const unknown = Object.keys(lifecycle).find((name) => !LIFECYCLE.includes(name));
  if (unknown !== undefined) {
    throw new Error(`${JSON.stringify(unknown)} is none of ${LIFECYCLE.join(", ")}`);
  }
  return new OwnedObject(object, lifecycle);
}

/** @param {KubernetesObject | null} object @param {KubernetesObject} owner */
export function isControlledBy(object, owner) {
  const references = object?.metadata.ownerReferences ?? [];
  return references.some((/** @type {any} */ { controller, uid }) => controller === true && uid === owner.metadata.uid);
}

/** @param {Plugin} plugin @param {Imports} imports */
export function plugin(plugin, imports) {
  const cluster = clusterOf(imports);
  if (/** @type {any} */ (globalThis).process?.versions?.node === undefined) {
    globalThis.console = consoleOf(cluster);
  }
  return {
    manifest: {
      /** @param {string | null} _configuration */
      describe: (_configuration) => described(plugin),
    },
    reconciler: {
      /** @param {RawRequest} request */
      reconcile: (request) => answered(request, (controller, own) => outcomeOf(controller.reconcile(own, cluster))),
    },
    finalizer: {
      /** @param {RawRequest} request */
      finalize: (request) =>
        answered(request, (controller, own) => {
          const finalization = functionOf(controller, "finalize")(own, cluster);
          return finalization === "done" ? { tag: "done" } : { tag: "pending", val: outcomeOf(finalization) };
        }),
    },
    defaulter: {
      /** @param {RawReview} review */
      applyDefaults: (review) =>
        reviewed(review, (controller, own) => JSON.stringify(functionOf(controller, "applyDefaults")(own, cluster) ?? null)),
    },
    validator: {
      /** @param {RawReview} review */
      validate: (review) =>
        reviewed(review, (controller, own) => functionOf(controller, "validate")(own, cluster) ?? []),
    },
  };

  /** @param {RawRequest} request @param {(controller: Controller, request: any) => unknown} call */
  function answered({ object, configuration, attempt }, call) {
    try {
      const primary = JSON.parse(object);
      const request = { object: primary, configuration: JSON.parse(configuration), attempt };
      return call(controllerOf(plugin, primary), request);
    } catch (error) {
      throw failureOf(error) ?? bug(error, cluster);
    }
  }

  /** @param {RawReview} raw @param {(controller: Controller, review: Review) => unknown} call */
  function reviewed(raw, call) {
    try {
      const { phase, kind, userInfo, dryRun } = raw;
      const parsed = (/** @type {string | null | undefined} */ text) => (typeof text === "string" ? JSON.parse(text) : null);
      const [object, oldObject] = [parsed(raw.object), parsed(raw.oldObject)];
      const configuration = JSON.parse(raw.configuration);
      const apiVersion = kind.group === "" ? kind.version : `${kind.group}/${kind.version}`;
      const controller = controllerOf(plugin, { apiVersion, kind: kind.kind });
      return call(controller, { phase, object, oldObject, configuration, userInfo: userInfo ?? null, dryRun });
    } catch (error) {
      throw fieldErrorsOf(error) ?? bug(error, cluster);
    }
  }
}

/** The manifest: the plugin without its functions, and which of them there are. @param {Plugin} plugin */
function described(plugin) {
  const controllers = plugin.controllers.map((controller) => ({
    ...controller,
    defaulter: controller.applyDefaults !== undefined,
    validator: controller.validate !== undefined,
  }));
  return JSON.stringify({ ...plugin, controllers });
}

/** @param {Plugin} plugin @param { {apiVersion: string, kind: string} } object @returns {Controller} */
function controllerOf(plugin, object) {
  const apiVersion = (/** @type {Kind} */ { group, version }) => (group === "" ? version : `${group}/${version}`);
  const found = plugin.controllers.find(
    ({ kind }) => kind.kind === object.kind && apiVersion(kind) === object.apiVersion,
  );
  if (found === undefined) {
    throw new Error(`there is no controller for ${object.apiVersion} ${object.kind}`);
  }
  return found;
}

/** What a controller need not have. @template {"finalize" | "applyDefaults" | "validate"} Name
 * @param {Controller} controller @param {Name} name @returns {NonNullable<Controller[Name]>} */
function functionOf(controller, name) {
  const found = controller[name];
  if (found === undefined) {
    throw new Error(`the controller ${controller.name} has no function ${name}`);
  }
  return found;
}

/** @param {Imports} imports @returns {Cluster} */
function clusterOf({ cluster, clock, log }) {
  return {
    get(kind, namespace, name) {
      const found = cluster.get(kind, namespace, name);
      return found === null || found === undefined ? null : JSON.parse(found);
    },
    list(kind, { namespace, labelSelector, fieldSelector, limit } = {}) {
      const options = {
        namespace: namespace ?? null,
        labelSelector: labelSelector ?? null,
        fieldSelector: fieldSelector ?? [],
        limit: limit ?? null,
      };
      return cluster.list(kind, options).map((/** @type {string} */ object) => JSON.parse(object));
    },
    now: (granularity) => clock.now(granularity),
    reached: (moment) => clock.reached(moment),
    log: (level, message, fields = {}) => log.log(level, message, Object.entries(fields)),
  };
}

/** A console whose lines go to the host's log: a component has no standard output. @param {Cluster} cluster @returns {any} */
export function consoleOf(cluster) {
  const textOf = (/** @type {unknown} */ it) => {
    if (typeof it === "string") {
      return it;
    }
    if (it instanceof Error) {
      return `${it.name}: ${it.message}`;
    }
    try {
      return JSON.stringify(it) ?? String(it);
    } catch {
      return String(it);
    }
  };
  const at = (/** @type {"trace" | "debug" | "info" | "warn" | "error"} */ level) => (/** @type {unknown[]} */ ...parts) =>
    cluster.log(level, parts.map(textOf).join(" "));
  const [trace, debug, info, warn, error] = [at("trace"), at("debug"), at("info"), at("warn"), at("error")];
  const assert = (/** @type {unknown} */ holds, /** @type {unknown[]} */ ...parts) =>
    holds ? undefined : error("assertion failed:", ...parts);
  const nothing = () => {};
  const others = { dir: info, dirxml: info, table: info, group: info, groupCollapsed: info, groupEnd: nothing, clear: nothing };
  const timers = { time: nothing, timeLog: nothing, timeEnd: nothing, count: nothing, countReset: nothing };
  return { log: info, trace, debug, info, warn, error, assert, ...others, ...timers };
}

/** The contract's word for one of Kubernetes. The component would trap without a reason if it returned another one.
 * @param {string} place @param {unknown} word @param {string[]} words */
function wordOf(place, word, words) {
  if (typeof word !== "string" || !words.includes(word)) {
    throw new Error(`${place}: ${JSON.stringify(word)} is none of ${words.map((it) => JSON.stringify(it)).join(", ")}`);
  }
  return word.toLowerCase();
}

/** @param {Outcome} outcome */
function outcomeOf({ owned = [], contributed = [], status, conditions = [], events = [], requeueAfter }) {
  const desired = (/** @type {string} */ ownership) => (/** @type {any} */ given) => {
    const { object, lifecycle } = given instanceof OwnedObject ? given : { object: given, lifecycle: {} };
    const { createOnly = false, keep = false, recreate = false, ...options } = /** @type {Lifecycle} */ (lifecycle);
    return { object: JSON.stringify(object), ownership, lifecycle: { createOnly, keep, recreate }, options: JSON.stringify(options) };
  };
  const present = owned.filter((object) => object !== null && object !== undefined);
  if (contributed.some((given) => given instanceof OwnedObject)) {
    throw new Error("a contributed object has a lifecycle, which only owned objects have");
  }
  return {
    desired: [...present.map(desired("owned")), ...contributed.map(desired("contributed"))],
    status: status === undefined ? null : JSON.stringify(status),
    conditions: conditions.map((condition, index) => ({
      ...condition,
      status: wordOf(`conditions[${index}].status`, condition.status, ["True", "False", "Unknown"]),
    })),
    events: events.map((event, index) => ({
      ...event,
      type: wordOf(`events[${index}].type`, event.type, ["Normal", "Warning"]),
    })),
    requeueAfter: requeueAfter ?? null,
    extensions: null,
  };
}

/** The contract's failure; null for what no author means to throw. @param {unknown} error */
function failureOf(error) {
  return error instanceof Failure ? { tag: error.kind, val: error.message } : null;
}

/** The contract's field errors; null where one is a bug. Several are thrown as an AggregateError. @param {unknown} error */
function fieldErrorsOf(error) {
  const errors = partsOf(error);
  if (!errors.every(isMeant)) {
    return null;
  }
  return errors.map((it) => {
    const { kind, path } = it instanceof FieldError ? it : { kind: "invalid", path: "" };
    return { kind, path, message: it.message };
  });
}

/** @param {unknown} error @returns {any[]} */
function partsOf(error) {
  return error instanceof AggregateError ? error.errors : [error];
}

/** @param {unknown} error */
function isMeant(error) {
  return error instanceof FieldError || error instanceof Failure;
}

/** Logs what an author did not mean to throw with its stack. Thrown again, it is no answer of the contract: the call traps, the
 * host blames the plugin rather than the object, and its failure has the message.
 * @param {unknown} error @param {Cluster} cluster */
function bug(error, cluster) {
  for (const it of partsOf(error).filter((it) => !isMeant(it))) {
    const [message, stack] = it instanceof Error ? [`${it.name}: ${it.message}`, it.stack ?? ""] : [String(it), ""];
    cluster.log("error", message, { stack });
  }
  return error;
}
