import assert from "node:assert/strict";
import { test } from "node:test";

import { Condition, Failure, FieldError, consoleOf, isControlledBy, plugin, withLifecycle } from "../pilothouse.js";
import { reconcile, website } from "../website.js";

/** A cluster that has these objects. */
function clusterOf(...objects) {
  const get = (kind, namespace, name) =>
    objects.find((it) => it.kind === kind.kind && it.metadata.namespace === namespace && it.metadata.name === name) ?? null;
  return { get, log() {} };
}

function blog(spec) {
  return {
    apiVersion: "example.com/v1",
    kind: "Website",
    metadata: { name: "blog", namespace: "shop" },
    spec: { image: "nginx:1.27", replicas: 2, port: 8080, ...spec },
  };
}

const kinds = ({ owned }) => owned.filter(Boolean).map(({ kind }) => kind);

test("without a host there is no Ingress", () => {
  const outcome = reconcile({ object: blog({}) }, clusterOf());
  assert.deepEqual(kinds(outcome), ["Deployment", "Service"]);
  assert.deepEqual(outcome.status, { url: "http://blog.shop.svc", readyReplicas: 0 });
  assert.equal(outcome.owned[1].spec.ports[0].targetPort, 8080);
});

test("with a host there is an Ingress", () => {
  const outcome = reconcile({ object: blog({ host: "blog.example.com" }) }, clusterOf());
  assert.deepEqual(kinds(outcome), ["Deployment", "Service", "Ingress"]);
  assert.equal(outcome.status.url, "http://blog.example.com");
});

test("the status counts the ready pods of the live Deployment", () => {
  const live = { kind: "Deployment", metadata: { name: "blog", namespace: "shop" }, status: { readyReplicas: 2 } };
  assert.equal(reconcile({ object: blog({}) }, clusterOf(live)).status.readyReplicas, 2);
});

test("a host that is no DNS name is refused", () => {
  for (const host of ["My Blog", "blog_1", "-blog", "blog..example.com", ""]) {
    const refused = (error) => error instanceof Failure && error.kind === "permanent" && /^spec\.host is /.test(error.message);
    assert.throws(() => reconcile({ object: blog({ host }) }, clusterOf()), refused, host);
  }
});

/** The component's exports, with what they log. */
function exported(reconcile, functions = {}) {
  const lines = [];
  const log = { log: (level, message, fields) => lines.push({ level, message, fields: Object.fromEntries(fields) }) };
  const [controller] = website.controllers;
  const exports = plugin({ ...website, controllers: [{ ...controller, reconcile, ...functions }] }, { cluster: {}, clock: {}, log });
  return { ...exports, lines };
}

const request = { object: JSON.stringify(blog({})), configuration: "{}", attempt: 0 };

test("the manifest is JSON without the functions", () => {
  const manifest = JSON.parse(exported(() => ({})).manifest.describe(null));
  assert.equal(manifest.controllers[0].reconcile, undefined);
  assert.equal(manifest.controllers[0].kind.kind, "Website");
});

test("the manifest says which functions a controller has", () => {
  const [controller] = JSON.parse(exported(null, { validate: () => {} }).manifest.describe(null)).controllers;
  assert.deepEqual([controller.defaulter, controller.validator], [false, true]);
});

test("a failure becomes the contract's", () => {
  const { reconciler, lines } = exported(() => {
    throw Failure.transient("later");
  });
  assert.throws(() => reconciler.reconcile(request), { tag: "transient", val: "later" });
  assert.deepEqual(lines, []);
});

test("any other exception is logged with its stack and is no answer of the contract", () => {
  const error = new TypeError("no such thing");
  const { reconciler, lines } = exported(() => {
    throw error;
  });
  assert.throws(() => reconciler.reconcile(request), (thrown) => thrown === error);
  assert.equal(lines[0].message, "TypeError: no such thing");
  assert.match(lines[0].fields.stack, /website\.test\.js/);
});

test("conditions and events have the words of Kubernetes, and others are named", () => {
  const answer = (outcome) => exported(() => outcome).reconciler.reconcile(request);
  const condition = { type: "Ready", status: "True", reason: "Served", message: "" };
  const event = { type: "Warning", reason: "Odd", message: "" };
  const { conditions, events } = answer({ conditions: [condition], events: [event] });
  assert.deepEqual(conditions, [{ ...condition, status: "true" }]);
  assert.deepEqual(events, [{ ...event, type: "warning" }]);
  const refused = (outcome, message) => assert.throws(() => answer(outcome), { name: "Error", message });
  const status = /conditions\[0\]\.status: true is none of "True", "False", "Unknown"/;
  refused({ conditions: [{ ...condition, status: true }] }, status);
  refused({ events: [{ ...event, type: "Error" }] }, /events\[0\]\.type: "Error" is none of "Normal", "Warning"/);
});

test("conditions are made by their status", () => {
  assert.deepEqual(
    [Condition.ready("Served", "all pods"), Condition.notReady("Starting"), Condition.unknown("Reachable", "NoAnswer")],
    [
      { type: "Ready", status: "True", reason: "Served", message: "all pods" },
      { type: "Ready", status: "False", reason: "Starting", message: "" },
      { type: "Reachable", status: "Unknown", reason: "NoAnswer", message: "" },
    ],
  );
});

test("a finalizer lets go or says what should still exist", () => {
  const answered = (finalize) => exported(null, { finalize }).finalizer.finalize(request);
  assert.deepEqual(answered(() => "done"), { tag: "done" });
  const pending = answered(({ object }) => ({ owned: [object] }));
  assert.equal(pending.tag, "pending");
  assert.equal(JSON.parse(pending.val.desired[0].object).metadata.name, "blog");
  // A forgotten `return` is no permission.
  assert.throws(() => answered(() => {}), { name: "TypeError" });
});

const review = {
  phase: "update",
  kind: { group: "example.com", version: "v1", kind: "Website" },
  object: request.object,
  oldObject: JSON.stringify(blog({ replicas: 1 })),
  configuration: "{}",
  userInfo: { username: "jane", groups: ["web"] },
  dryRun: false,
};

test("a defaulter and a validator are given a review with objects", () => {
  const applyDefaults = ({ object }) => ({ ...object, spec: { ...object.spec, host: "a.example" } });
  const validate = ({ phase, object, oldObject, userInfo }) => [
    `${phase} of ${oldObject.spec.replicas} to ${object.spec.replicas} by ${userInfo.username}`,
  ];
  const { defaulter, validator } = exported(null, { applyDefaults, validate });
  assert.equal(JSON.parse(defaulter.applyDefaults(review)).spec.host, "a.example");
  assert.deepEqual(validator.validate(review), ["update of 1 to 2 by jane"]);
  assert.deepEqual(exported(null, { validate: () => {} }).validator.validate(review), []);
});

test("what a validator throws becomes field errors", () => {
  const refused = (error) => {
    const validate = () => {
      throw error;
    };
    const { validator, lines } = exported(null, { validate });
    try {
      validator.validate(review);
    } catch (errors) {
      return { errors, lines };
    }
  };
  const one = FieldError.notFound("spec.host", "nobody has it");
  const other = FieldError.required("spec.port", "");
  assert.deepEqual(refused(new AggregateError([one, other])).errors, [
    { kind: "not-found", path: "spec.host", message: "nobody has it" },
    { kind: "required", path: "spec.port", message: "" },
  ]);
  const failure = [{ kind: "invalid", path: "", message: "not now" }];
  assert.deepEqual(refused(Failure.transient("not now")).errors, failure);
  for (const bug of [new TypeError("no such thing"), new AggregateError([one, new TypeError("no such thing")])]) {
    const { errors, lines } = refused(bug);
    assert.equal(errors, bug);
    assert.match(lines.at(-1).fields.stack, /website\.test\.js/);
    assert.ok(lines.some(({ message }) => message === "TypeError: no such thing"));
  }
});

test("an object belongs to the controller that its owner references name", () => {
  const owner = { metadata: { uid: "u-1" } };
  const owned = (reference) => ({ metadata: { ownerReferences: [{ uid: "u-1", controller: true, ...reference }] } });
  assert.equal(isControlledBy(owned({}), owner), true);
  assert.equal(isControlledBy(owned({ controller: false }), owner), false);
  assert.equal(isControlledBy(owned({ uid: "u-2" }), owner), false);
  assert.equal(isControlledBy(null, owner), false);
});

test("each exception to the life of an object reaches the host", () => {
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a" } };
  const desiredOf = (outcome) => exported(() => outcome).reconciler.reconcile(request).desired;
  const none = { createOnly: false, keep: false, recreate: false };
  for (const [lifecycle, flags, options] of [
    [{}, none, "{}"],
    [{ createOnly: true }, { ...none, createOnly: true }, "{}"],
    [{ keep: true }, { ...none, keep: true }, "{}"],
    [{ recreate: true }, { ...none, recreate: true }, "{}"],
    [{ replace: true, keep: true }, { ...none, keep: true }, '{"replace":true}'],
    [{ propagation: "Orphan", adopt: "IfUnowned" }, none, '{"propagation":"Orphan","adopt":"IfUnowned"}'],
    [{ yield: [".spec.replicas"] }, none, '{"yield":[".spec.replicas"]}'],
    [{ after: [{ apiVersion: "v1", kind: "Secret", name: "b" }] }, none, '{"after":[{"apiVersion":"v1","kind":"Secret","name":"b"}]}'],
    [{ once: "v2" }, none, '{"once":"v2"}'],
  ]) {
    const [desired] = desiredOf({ owned: [null, withLifecycle(object, lifecycle)] });
    assert.deepEqual([desired.lifecycle, desired.options], [flags, options]);
    assert.deepEqual(JSON.parse(desired.object), object);
  }
  assert.throws(() => withLifecycle(object, { replaced: true }), /"replaced" is none of createOnly, keep, recreate, replace, propagation/);
  const contributed = exported(() => ({ contributed: [withLifecycle(object, { keep: true })] }));
  assert.throws(() => contributed.reconciler.reconcile(request), /only owned objects have/);
});

test("what is written to the console goes to the log", () => {
  const lines = [];
  const console = consoleOf({ log: (level, message) => lines.push([level, message]) });
  console.log("a", { b: [1] }, undefined);
  console.warn(new RangeError("too far"));
  console.assert(true, "not this");
  console.assert(false, "this");
  const round = {};
  round.round = round;
  console.debug(round);
  assert.deepEqual(lines, [
    ["info", 'a {"b":[1]} undefined'],
    ["warn", "RangeError: too far"],
    ["error", "assertion failed: this"],
    ["debug", "[object Object]"],
  ]);
});
