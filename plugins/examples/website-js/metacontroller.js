// Runs hooks of Metacontroller: functions from { parent, children, finalizing } to { status, children, resyncAfterSeconds, finalized }.
import { withLifecycle } from "./pilothouse.js";

/** @import { Cluster, Controller, Kind, Lifecycle, Outcome, Request } from "./pilothouse.js" */

/** What a child's update strategy is called here. @type {Record<string, Lifecycle>} */
const LIFECYCLES = { OnDelete: { createOnly: true }, Recreate: { replace: true }, InPlace: {} };

/** A controller of a CompositeController's hooks. `children` are its child resources, each a kind with `strategy`, the method of its
 * updateStrategy. @param {any} composite @returns {Controller} */
export function compositeController({ sync, finalize, children, ...controller }) {
  /** @param {(request: any) => any} hook @returns {(request: Request, cluster: Cluster) => any} */
  const called = (hook) => ({ object: parent }, cluster) => {
    const { namespace, uid, deletionTimestamp } = parent.metadata;
    const fieldSelector = /** @type {[string, string][]} */ ([[".metadata.ownerReferences[].uid", uid]]);
    const observed = children.map((/** @type {{ kind: Kind }} */ { kind }) => {
      const live = cluster.list(kind, { namespace, fieldSelector }).map((child) => [child.metadata.name, child]);
      const apiVersion = kind.group === "" ? kind.version : `${kind.group}/${kind.version}`;
      return [`${kind.kind}.${apiVersion}`, Object.fromEntries(live)];
    });
    const finalizing = deletionTimestamp !== undefined;
    const answer = hook({ parent, children: Object.fromEntries(observed), finalizing });
    const owned = (answer.children ?? []).map((/** @type {any} */ child) => {
      const { strategy = "OnDelete" } = children.find((/** @type {any} */ { kind }) => kind.kind === child.kind) ?? {};
      return withLifecycle(child, LIFECYCLES[strategy] ?? {});
    });
    const requeueAfter = answer.resyncAfterSeconds > 0 ? answer.resyncAfterSeconds * 1000 : undefined;
    return finalizing && answer.finalized ? "done" : { owned, status: answer.status, requeueAfter };
  };
  const touches = children.map((/** @type {any} */ { kind }) => ({ kind, access: ["owned", "read"], fields: ["."] }));
  const finalizer = finalize === undefined ? {} : { finalize: called(finalize) };
  return { ...controller, fields: ["."], touches, options: ["replace"], reconcile: called(sync), ...finalizer };
}
