// The operator: a Deployment, a Service and, with a host, an Ingress for each Website.
import { Failure } from "./pilothouse.js";

/** @import { Cluster, KubernetesObject, Outcome, Plugin, Primary, Request } from "./pilothouse.js" */

/**
 * @typedef {object} WebsiteSpec
 * @property {string} image
 * @property {number} replicas
 * @property {number} port
 * @property {string} [host]
 */

const DEPLOYMENT = { group: "apps", version: "v1", kind: "Deployment" };
const SERVICE = { group: "", version: "v1", kind: "Service" };
const INGRESS = { group: "networking.k8s.io", version: "v1", kind: "Ingress" };

const DNS_NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** @type {Plugin} */
export const website = {
  name: "website",
  version: "0.1.0",
  description: "A web server for each Website.",
  controllers: [
    {
      name: "website",
      kind: { group: "example.com", version: "v1", kind: "Website" },
      fields: [".spec"],
      touches: [
        { kind: DEPLOYMENT, access: ["read", "owned"], fields: [".status.readyReplicas"] },
        { kind: SERVICE, access: ["owned"] },
        { kind: INGRESS, access: ["owned"] },
      ],
      reconcile,
    },
  ],
};

/**
 * @param {Request<Primary<WebsiteSpec>>} request
 * @param {Cluster} cluster
 * @returns {Outcome}
 */
export function reconcile({ object: { metadata, spec } }, cluster) {
  const { name, namespace = "" } = metadata;
  check(spec);
  const deployed = cluster.get(DEPLOYMENT, namespace, name);
  return {
    owned: [deployment(name, spec), service(name, spec), spec.host ? ingress(name, spec.host) : null],
    status: {
      url: spec.host ? `http://${spec.host}` : `http://${name}.${namespace}.svc`,
      readyReplicas: deployed?.status?.readyReplicas ?? 0,
    },
  };
}

/** @param {WebsiteSpec} spec */
function check({ image, host }) {
  if (image.trim() === "" || /\s/.test(image)) {
    throw Failure.permanent(`spec.image is ${JSON.stringify(image)}, which is not an image: it must have no spaces`);
  }
  if (host !== undefined && !(DNS_NAME.test(host) && host.length <= 253)) {
    const rule = 'use lower-case letters, digits, "-" and "."';
    throw Failure.permanent(`spec.host is ${JSON.stringify(host)}, which is not a DNS name: ${rule}`);
  }
}

/** @param {string} name @param {WebsiteSpec} spec @returns {KubernetesObject} */
function deployment(name, { image, replicas, port }) {
  const labels = { app: name };
  const container = { name: "web", image, ports: [{ containerPort: port, protocol: "TCP" }] };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name, labels },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [container] } },
    },
  };
}

/** @param {string} name @param {WebsiteSpec} spec @returns {KubernetesObject} */
function service(name, { port }) {
  const ports = [{ name: "http", port: 80, targetPort: port, protocol: "TCP" }];
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, labels: { app: name } },
    spec: { selector: { app: name }, ports },
  };
}

/** @param {string} name @param {string} host @returns {KubernetesObject} */
function ingress(name, host) {
  const backend = { service: { name, port: { name: "http" } } };
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "Ingress",
    metadata: { name, labels: { app: name } },
    spec: { rules: [{ host, http: { paths: [{ path: "/", pathType: "Prefix", backend }] } }] },
  };
}
