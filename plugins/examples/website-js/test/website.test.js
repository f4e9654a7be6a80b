import assert from "node:assert/strict";
import { test } from "node:test";

import { Failure, plugin } from "../pilothouse.js";
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
function exported(reconcile) {
  const lines = [];
  const log = { log: (level, message, fields) => lines.push({ level, message, fields: Object.fromEntries(fields) }) };
  const [controller] = website.controllers;
  const exports = plugin({ ...website, controllers: [{ ...controller, reconcile }] }, { cluster: {}, clock: {}, log });
  return { ...exports, lines };
}

const request = { object: JSON.stringify(blog({})), configuration: "{}", attempt: 0 };

test("the manifest is JSON without the functions", () => {
  const manifest = JSON.parse(exported(() => ({})).manifest.describe(null));
  assert.equal(manifest.controllers[0].reconcile, undefined);
  assert.equal(manifest.controllers[0].kind.kind, "Website");
});

test("a failure becomes the contract's", () => {
  const { reconciler, lines } = exported(() => {
    throw Failure.transient("later");
  });
  assert.throws(() => reconciler.reconcile(request), { tag: "transient", val: "later" });
  assert.deepEqual(lines, []);
});

test("any other exception is logged with its stack and becomes a failure", () => {
  const { reconciler, lines } = exported(() => {
    throw new TypeError("no such thing");
  });
  assert.throws(() => reconciler.reconcile(request), { tag: "permanent", val: "the plugin threw TypeError: no such thing" });
  assert.equal(lines[0].message, "TypeError: no such thing");
  assert.match(lines[0].fields.stack, /website\.test\.js/);
});
