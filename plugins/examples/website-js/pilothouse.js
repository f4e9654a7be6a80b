// A small helper: from the contract's records to objects and back. It needs nothing but JavaScript, so that tests can load it.

/** @import { Cluster, Controller, Imports, Kind, KubernetesObject, Outcome, Plugin, RawRequest } from "./pilothouse.js" */

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

/** @param {Plugin} plugin @param {Imports} imports */
export function plugin(plugin, imports) {
  const cluster = clusterOf(imports);
  return {
    manifest: {
      /** @param {string | null} _configuration */
      describe: (_configuration) => described(plugin),
    },
    reconciler: {
      /** @param {RawRequest} request */
      reconcile({ object, configuration, attempt }) {
        try {
          const primary = JSON.parse(object);
          const controller = controllerOf(plugin, primary);
          const request = { object: primary, configuration: JSON.parse(configuration), attempt };
          return outcomeOf(controller.reconcile(request, cluster));
        } catch (error) {
          throw failureOf(error, cluster);
        }
      },
    },
  };
}

/** The manifest: the plugin without its functions. @param {Plugin} plugin */
function described(plugin) {
  return JSON.stringify(plugin);
}

/** @param {Plugin} plugin @param {KubernetesObject} object @returns {Controller} */
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

/** @param {Outcome} outcome */
function outcomeOf({ owned = [], contributed = [], status, conditions = [], events = [], requeueAfter }) {
  const desired = (/** @type {string} */ ownership) => (/** @type {KubernetesObject} */ object) => ({
    object: JSON.stringify(object),
    ownership,
    lifecycle: { createOnly: false, keep: false, recreate: false },
    options: "{}",
  });
  const present = owned.filter((object) => object !== null && object !== undefined);
  return {
    desired: [...present.map(desired("owned")), ...contributed.map(desired("contributed"))],
    status: status === undefined ? null : JSON.stringify(status),
    conditions,
    events,
    requeueAfter: requeueAfter ?? null,
    extensions: null,
  };
}

/** The contract's failure. What an author did not throw is logged with its stack. @param {unknown} error @param {Cluster} cluster */
function failureOf(error, cluster) {
  if (error instanceof Failure) {
    return { tag: error.kind, val: error.message };
  }
  const [message, stack] = error instanceof Error ? [`${error.name}: ${error.message}`, error.stack ?? ""] : [String(error), ""];
  cluster.log("error", message, { stack });
  return { tag: "permanent", val: `the plugin threw ${message}` };
}
