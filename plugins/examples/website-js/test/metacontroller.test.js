import assert from "node:assert/strict";
import { test } from "node:test";

import { compositeController } from "../metacontroller.js";
import { plugin } from "../pilothouse.js";

const POD = { group: "", version: "v1", kind: "Pod" };
const parent = {
  apiVersion: "ctl.example.com/v1",
  kind: "Task",
  metadata: { name: "count", namespace: "a", uid: "u-1" },
  spec: { image: "busybox", pods: 2 },
};

/** A hook as Metacontroller's examples have it. */
function sync({ parent, children, finalizing }) {
  const pods = Object.values(children["Pod.v1"]);
  const desired = Array.from({ length: finalizing ? 0 : parent.spec.pods }, (_, index) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `${parent.metadata.name}-${index}` },
    spec: { containers: [{ name: "main", image: parent.spec.image }] },
  }));
  return { status: { pods: pods.length }, children: desired, resyncAfterSeconds: 5, finalized: finalizing && pods.length === 0 };
}

function called(interface_, object, pods, strategy) {
  const listed = [];
  const list = (kind, { namespace, fieldSelector }) => {
    listed.push([kind.kind, namespace, fieldSelector]);
    return pods.map((name) => JSON.stringify({ apiVersion: "v1", kind: "Pod", metadata: { name } }));
  };
  const kind = { group: "ctl.example.com", version: "v1", kind: "Task" };
  const children = [{ kind: POD, strategy }];
  const controller = compositeController({ name: "task", kind, children, finalizer: "example.com/t", sync, finalize: sync });
  const imports = { cluster: { list }, clock: {}, log: { log() {} } };
  const exports = plugin({ name: "tasks", version: "0.1.0", controllers: [controller] }, imports);
  const request = { object: JSON.stringify(object), configuration: "{}", attempt: 0 };
  const answer = interface_ === "finalizer" ? exports.finalizer.finalize(request) : exports.reconciler.reconcile(request);
  return { answer, listed, manifest: JSON.parse(exports.manifest.describe(null)) };
}

test("a hook runs unchanged, and its children are found by their owner", () => {
  const { answer, listed, manifest } = called("reconciler", parent, ["count-0"], "Recreate");
  assert.deepEqual(listed, [["Pod", "a", [[".metadata.ownerReferences[].uid", "u-1"]]]]);
  assert.deepEqual(answer.desired.map(({ object }) => JSON.parse(object).metadata.name), ["count-0", "count-1"]);
  assert.deepEqual([answer.status, answer.requeueAfter], ['{"pods":1}', 5000]);
  assert.equal(answer.desired[0].options, '{"replace":true}');
  assert.deepEqual(manifest.controllers[0].touches[0].access, ["owned", "read"]);
  assert.deepEqual(manifest.controllers[0].options, ["replace"]);
});

test("each update strategy has its lifecycle", () => {
  const flags = (strategy) => called("reconciler", parent, [], strategy).answer.desired[0];
  assert.equal(flags("OnDelete").lifecycle.createOnly, true);
  assert.equal(flags(undefined).lifecycle.createOnly, true);
  assert.deepEqual([flags("InPlace").lifecycle.createOnly, flags("InPlace").options], [false, "{}"]);
});

test("a finalize hook says when the object may go", () => {
  const deleted = { ...parent, metadata: { ...parent.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } };
  assert.equal(called("finalizer", deleted, ["count-0"]).answer.tag, "pending");
  assert.equal(called("finalizer", deleted, []).answer.tag, "done");
});
