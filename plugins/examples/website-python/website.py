"""The operator: a Deployment, a Service and, with a host, an Ingress for each Website."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pilothouse import Cluster, Controller, Kind, Object, Outcome, Permanent, Plugin, Request, Touch

WEBSITE = Kind("example.com", "v1", "Website")
DEPLOYMENT = Kind("apps", "v1", "Deployment")
SERVICE = Kind("", "v1", "Service")
INGRESS = Kind("networking.k8s.io", "v1", "Ingress")

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME = re.compile(rf"{LABEL}(\.{LABEL})*")


@dataclass(frozen=True)
class WebsiteSpec:
    image: str
    replicas: int = 1
    port: int = 80
    host: str | None = None


def reconcile(request: Request, cluster: Cluster) -> Outcome:
    name, namespace, spec = request.name, request.namespace, request.spec
    check(spec)
    deployed = cluster.get(DEPLOYMENT, namespace, name) or {}
    return Outcome(
        owned=[deployment(name, spec), service(name, spec), ingress(name, spec.host) if spec.host else None],
        status={
            "url": f"http://{spec.host}" if spec.host else f"http://{name}.{namespace}.svc",
            "readyReplicas": deployed.get("status", {}).get("readyReplicas", 0),
        },
    )


def check(spec: WebsiteSpec) -> None:
    if not spec.image.strip() or re.search(r"\s", spec.image):
        raise Permanent(f"spec.image is {json.dumps(spec.image)}, which is not an image: it must have no spaces")
    if spec.host is not None and not (DNS_NAME.fullmatch(spec.host) and len(spec.host) <= 253):
        rule = 'use lower-case letters, digits, "-" and "."'
        raise Permanent(f"spec.host is {json.dumps(spec.host)}, which is not a DNS name: {rule}")


def deployment(name: str, spec: WebsiteSpec) -> Object:
    labels = {"app": name}
    container = {
        "name": "web",
        "image": spec.image,
        "ports": [{"containerPort": spec.port, "protocol": "TCP"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service(name: str, spec: WebsiteSpec) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": spec.port, "protocol": "TCP"}],
        },
    }


def ingress(name: str, host: str) -> Object:
    backend = {"service": {"name": name, "port": {"name": "http"}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]},
    }


PLUGIN = Plugin(
    name="website",
    version="0.1.0",
    description="A web server for each Website.",
    # Read while the component is built: at run time there are no files.
    crds=[Path(__file__).with_name("crd.yaml").read_text(encoding="utf-8")],
    controllers=[
        Controller(
            name="website",
            kind=WEBSITE,
            spec=WebsiteSpec,
            reconcile=reconcile,
            touches=[
                Touch(DEPLOYMENT, ["read", "owned"], fields=[".status.readyReplicas"]),
                Touch(SERVICE, ["owned"]),
                Touch(INGRESS, ["owned"]),
            ],
        )
    ],
)
