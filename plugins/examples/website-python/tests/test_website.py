import json
import unittest
from dataclasses import dataclass, replace
from enum import Enum, Flag
from types import SimpleNamespace

from pilothouse import Permanent, Request, Transient, exports
from website import PLUGIN, WebsiteSpec, reconcile


class FakeCluster:
    def __init__(self, *objects):
        self.objects = objects

    def get(self, kind, namespace, name):
        for it in self.objects:
            if (it["kind"], it["metadata"]["namespace"], it["metadata"]["name"]) == (kind.kind, namespace, name):
                return it
        return None


def request(**spec):
    given = {"image": "nginx:1.27", "replicas": 2, "port": 8080, **spec}
    object = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": "blog", "namespace": "shop"},
        "spec": given,
    }
    return Request(object, WebsiteSpec(**given), {}, 0)


def kinds(outcome):
    return [it["kind"] for it in outcome.owned if it is not None]


class WebsiteTest(unittest.TestCase):
    def test_without_a_host_there_is_no_ingress(self):
        outcome = reconcile(request(), FakeCluster())
        self.assertEqual(kinds(outcome), ["Deployment", "Service"])
        self.assertEqual(outcome.status, {"url": "http://blog.shop.svc", "readyReplicas": 0})
        self.assertEqual(outcome.owned[1]["spec"]["ports"][0]["targetPort"], 8080)

    def test_with_a_host_there_is_an_ingress(self):
        outcome = reconcile(request(host="blog.example.com"), FakeCluster())
        self.assertEqual(kinds(outcome), ["Deployment", "Service", "Ingress"])
        self.assertEqual(outcome.status["url"], "http://blog.example.com")

    def test_the_status_counts_the_ready_pods_of_the_live_deployment(self):
        live = {
            "kind": "Deployment",
            "metadata": {"name": "blog", "namespace": "shop"},
            "status": {"readyReplicas": 2},
        }
        self.assertEqual(reconcile(request(), FakeCluster(live)).status["readyReplicas"], 2)

    def test_a_host_that_is_no_dns_name_is_refused(self):
        for host in ["My Blog", "blog_1", "-blog", "blog..example.com", "blog\n", ""]:
            with self.subTest(host), self.assertRaisesRegex(Permanent, "^spec.host is "):
                reconcile(request(host=host), FakeCluster())


class Level(Enum):
    ERROR = 4


class Ownership(Enum):
    OWNED = 0
    CONTRIBUTED = 1


@dataclass(frozen=True)
class Err(Exception):
    value: object


def exported(reconcile, lines):
    """The component's exports over stand-ins of the generated modules."""
    types = SimpleNamespace(
        Failure_Transient=lambda message: ("transient", message),
        Failure_Permanent=lambda message: ("permanent", message),
        Desired=lambda *members: members,
        Lifecycle=Flag("Lifecycle", ["KEEP"]),
        Ownership=Ownership,
        Outcome=SimpleNamespace,
    )
    log = SimpleNamespace(Level=Level, log=lambda *line: lines.append(line))
    plugin = replace(PLUGIN, controllers=[replace(PLUGIN.controllers[0], reconcile=reconcile)])
    return exports(plugin, clock=None, cluster=None, log=log, types=types, Err=Err)


class HelperTest(unittest.TestCase):
    def failure(self, error, lines, spec=None):
        def failing(request, cluster):
            raise error

        object = request().object | ({} if spec is None else {"spec": spec})
        _, reconciler = exported(failing, lines)
        with self.assertRaises(Err) as raised:
            reconciler().reconcile(SimpleNamespace(object=json.dumps(object), configuration="{}", attempt=0))
        return raised.exception.value

    def test_the_manifest_declares_the_fields_of_the_spec(self):
        manifest, _ = exported(reconcile, [])
        described = json.loads(manifest().describe(None))
        self.assertEqual(
            described["controllers"][0]["fields"], [".spec.image", ".spec.replicas", ".spec.port", ".spec.host"]
        )

    def test_failures_become_the_contracts(self):
        lines = []
        self.assertEqual(self.failure(Transient("later"), lines), ("transient", "later"))
        self.assertEqual(self.failure(Permanent("never"), lines), ("permanent", "never"))
        self.assertEqual(self.failure(Permanent("never"), lines, spec={}), ("permanent", "spec.image is missing"))
        self.assertEqual(lines, [])

    def test_any_other_exception_is_logged_with_its_traceback_and_becomes_a_failure(self):
        lines = []
        failure = self.failure(ValueError("no such thing"), lines)
        self.assertEqual(failure, ("permanent", "the plugin raised ValueError: no such thing"))
        [(level, message, logged)] = lines
        self.assertEqual((level, message), (Level.ERROR, "ValueError: no such thing"))
        self.assertIn("test_website.py", dict(logged)["traceback"])


if __name__ == "__main__":
    unittest.main()
