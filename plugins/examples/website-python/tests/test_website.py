from __future__ import annotations

import json
import sys
import unittest
from dataclasses import dataclass, field, replace
from enum import Enum, Flag
from types import SimpleNamespace

from pilothouse import (
    Condition,
    Controller,
    Done,
    Event,
    FieldError,
    Kind,
    Lifecycle,
    Outcome,
    OwnedObject,
    Permanent,
    Request,
    Transient,
    admission_exports,
    exports,
    finalizer_export,
    is_controlled_by,
)
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


@dataclass(frozen=True)
class Subject:
    user: str


@dataclass(frozen=True)
class Rule:
    user: str
    subject: Subject | None = None
    more: dict[str, list[Subject]] = field(default_factory=dict)


@dataclass(frozen=True)
class NestedSpec:
    rules: list[Rule]
    first: Rule | None = None
    ports: dict[str, int] = field(default_factory=dict)
    either: int | str = 0
    labels: list = field(default_factory=list)


class NestedTest(unittest.TestCase):
    def read(self, **spec):
        controller = Controller("nested", Kind("example.com", "v1", "Nested"), NestedSpec, reconcile)
        return controller.read({"spec": spec})

    def test_the_dataclasses_in_a_spec_are_built(self):
        given = {
            "rules": [{"user": "a", "subject": {"user": "b"}, "more": {"x": [{"user": "c"}]}}, {"user": "d", "new": 1}],
            "first": {"user": "e", "subject": None},
            "ports": {"web": 80},
            "either": "http",
            "labels": [{"user": "as it is"}],
        }
        rules = [Rule("a", Subject("b"), {"x": [Subject("c")]}), Rule("d")]
        expected = NestedSpec(rules, Rule("e"), {"web": 80}, "http", [{"user": "as it is"}])
        self.assertEqual(self.read(**given), expected)
        self.assertEqual(self.read(rules=[], first=None), NestedSpec([]))

    def test_what_is_missing_is_named_with_its_path(self):
        for spec, message in [
            ({}, "spec.rules is missing"),
            ({"rules": [{}]}, "spec.rules[0].user is missing"),
            ({"rules": [{"user": "a"}, {"user": "b", "subject": {}}]}, "spec.rules[1].subject.user is missing"),
            ({"rules": [{"user": "a", "more": {"x": [{}]}}]}, "spec.rules[0].more[x][0].user is missing"),
            ({"rules": ["a"]}, "spec.rules[0] is not an object"),
        ]:
            with self.assertRaises(Permanent) as raised:
                self.read(**spec)
            self.assertEqual(str(raised.exception), message)


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
    INFO = 2
    WARN = 3
    ERROR = 4


class Ownership(Enum):
    OWNED = 0
    CONTRIBUTED = 1


@dataclass(frozen=True)
class Err(Exception):
    value: object


def host(lines):
    """Stand-ins of the generated modules."""
    types = SimpleNamespace(
        Failure_Transient=lambda message: ("transient", message),
        Failure_Permanent=lambda message: ("permanent", message),
        Desired=lambda *members: members,
        Lifecycle=Flag("Lifecycle", ["CREATE_ONLY", "KEEP", "RECREATE"]),
        Ownership=Ownership,
        Condition=lambda type, status, reason, message: SimpleNamespace(type=type, status=status),
        ConditionStatus={"TRUE": "true", "FALSE": "false", "UNKNOWN": "unknown"},
        Event=lambda type, reason, message: SimpleNamespace(type=type),
        EventType={"NORMAL": "normal", "WARNING": "warning"},
        Outcome=SimpleNamespace,
    )
    log = SimpleNamespace(Level=Level, log=lambda *line: lines.append(line))
    return {"clock": None, "cluster": None, "log": log, "types": types, "Err": Err}


def plugin_with(**functions):
    return replace(PLUGIN, controllers=[replace(PLUGIN.controllers[0], **functions)])


def exported(reconcile, lines):
    """The component's exports."""
    return exports(plugin_with(reconcile=reconcile), **host(lines))


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

    def test_the_manifest_says_which_functions_a_controller_has(self):
        [controller] = json.loads(plugin_with(validate=lambda review, cluster: []).manifest())["controllers"]
        self.assertEqual((controller["defaulter"], controller["validator"]), (False, True))

    def test_failures_become_the_contracts(self):
        lines = []
        self.assertEqual(self.failure(Transient("later"), lines), ("transient", "later"))
        self.assertEqual(self.failure(Permanent("never"), lines), ("permanent", "never"))
        self.assertEqual(self.failure(Permanent("never"), lines, spec={}), ("permanent", "spec.image is missing"))
        self.assertEqual(lines, [])

    def test_conditions_and_events_have_the_words_of_kubernetes_and_others_are_named(self):
        def answer(**outcome):
            _, reconciler = exported(lambda request, cluster: Outcome(**outcome), [])
            raw = SimpleNamespace(object=json.dumps(request().object), configuration="{}", attempt=0)
            return reconciler().reconcile(raw)

        answered = answer(
            conditions=[Condition("Ready", "True", "Served", "")], events=[Event("Warning", "Odd", "")]
        )
        self.assertEqual(answered.conditions[0].status, "true")
        self.assertEqual(answered.events[0].type, "warning")
        for wrong in [
            {"conditions": [Condition("Ready", "TRUE", "Served", "")]},
            {"events": [Event("Error", "Odd", "")]},
        ]:
            with self.assertRaisesRegex(ValueError, "(TRUE|Error)', which is none of (True|Normal), "):
                answer(**wrong)

    def test_conditions_are_made_by_their_status(self):
        made = [Condition.ready("Served", "all"), Condition.not_ready("Starting"), Condition.unknown("Reachable", "No")]
        self.assertEqual(
            made,
            [
                Condition("Ready", "True", "Served", "all"),
                Condition("Ready", "False", "Starting", ""),
                Condition("Reachable", "Unknown", "No", ""),
            ],
        )

    def test_any_other_exception_is_logged_with_its_traceback_and_is_no_answer_of_the_contract(self):
        lines = []
        with self.assertRaisesRegex(ValueError, "^no such thing$"):
            self.failure(ValueError("no such thing"), lines)
        [(level, message, logged)] = lines
        self.assertEqual((level, message), (Level.ERROR, "ValueError: no such thing"))
        self.assertIn("test_website.py", dict(logged)["traceback"])


    def test_each_exception_to_the_life_of_an_object_reaches_the_host(self):
        def desired(**outcome):
            _, reconciler = exported(lambda request, cluster: Outcome(**outcome), [])
            raw = SimpleNamespace(object=json.dumps(request().object), configuration="{}", attempt=0)
            return [(json.loads(it[0]), it[2].value, it[3]) for it in reconciler().reconcile(raw).desired]

        for lifecycle, flags, options in [
            (Lifecycle(), 0, "{}"),
            (Lifecycle(create_only=True), 1, "{}"),
            (Lifecycle(keep=True), 2, "{}"),
            (Lifecycle(recreate=True), 4, "{}"),
            (Lifecycle(keep=True, replace=True), 2, '{"replace": true}'),
            (Lifecycle(propagation="Orphan", adopt="IfUnowned"), 0, '{"propagation": "Orphan", "adopt": "IfUnowned"}'),
            (Lifecycle(yields=[".spec.replicas"]), 0, '{"yield": [".spec.replicas"]}'),
            (Lifecycle(after=[{"kind": "Secret", "name": "b"}], once="v2"), 0, '{"after": [{"kind": "Secret", "name": "b"}], "once": "v2"}'),
        ]:
            owned = desired(owned=[None, OwnedObject({"of": "blog"}, lifecycle), {"plain": 1}])
            self.assertEqual(owned, [({"of": "blog"}, flags, options), ({"plain": 1}, 0, "{}")])
        with self.assertRaisesRegex(TypeError, "only owned objects have"):
            desired(contributed=[OwnedObject({}, Lifecycle(keep=True))])
        manifest = plugin_with(options=["replace"]).manifest()
        self.assertEqual(json.loads(manifest)["controllers"][0]["options"], ["replace"])

    def test_what_is_printed_goes_to_the_log(self):
        def printing(request, cluster):
            print("a", {"b": 1})
            print("two\nlines", end="")
            print("careful", file=sys.stderr)
            return Outcome()

        lines, out = [], sys.stdout
        _, reconciler = exported(printing, lines)
        reconciler().reconcile(SimpleNamespace(object=json.dumps(request().object), configuration="{}", attempt=0))
        info, warn = Level.INFO, Level.WARN
        expected = [(info, "a {'b': 1}", []), (info, "two", []), (warn, "careful", []), (info, "lines", [])]
        self.assertEqual(lines, expected)
        self.assertIs(sys.stdout, out)


class FinalizerTest(unittest.TestCase):
    def finalized(self, finalize):
        finalizer = SimpleNamespace(Finalization_Done=lambda: "done", Finalization_Pending=lambda outcome: outcome)
        export = finalizer_export(plugin_with(finalize=finalize), finalizer, **host([]))
        raw = SimpleNamespace(object=json.dumps(request().object), configuration="{}", attempt=0)
        return export().finalize(raw)

    def test_it_lets_go_or_says_what_should_still_exist(self):
        self.assertEqual(self.finalized(lambda request, cluster: Done()), "done")
        pending = self.finalized(lambda request, cluster: Outcome(owned=[{"of": request.name}]))
        self.assertEqual(pending.desired[0][0], '{"of": "blog"}')

    def test_a_forgotten_return_is_no_permission(self):
        with self.assertRaises(AttributeError):
            self.finalized(lambda request, cluster: None)


class AdmissionTest(unittest.TestCase):
    def reviewed(self, lines, **functions):
        admission = SimpleNamespace(
            FieldErrorKind={kind: kind for kind in ["NOT_FOUND", "REQUIRED", "INVALID"]},
            FieldError=lambda *members: members,
        )
        defaulter, validator = admission_exports(plugin_with(**functions), admission, **host(lines))
        review = SimpleNamespace(
            phase=SimpleNamespace(name="UPDATE"),
            kind=SimpleNamespace(group="example.com", version="v1", kind="Website"),
            object=json.dumps(request().object),
            old_object=json.dumps(request(replicas=1).object),
            configuration="{}",
            user_info=SimpleNamespace(username="jane", groups=["web"]),
            dry_run=False,
        )
        return lambda: defaulter().apply_defaults(review), lambda: validator().validate(review)

    def test_a_defaulter_and_a_validator_are_given_a_review_with_objects(self):
        def apply_defaults(review, cluster):
            return {"host": "a.example", "of": review.object["metadata"]["name"]}

        def validate(review, cluster):
            old = review.old_object["spec"]["replicas"]
            return [f"{review.phase} of {old} to {review.spec.replicas} by {review.user_info.username}"]

        default, validated = self.reviewed([], apply_defaults=apply_defaults, validate=validate)
        self.assertEqual(json.loads(default()), {"host": "a.example", "of": "blog"})
        self.assertEqual(validated(), ["UPDATE of 1 to 2 by jane"])

    def refused(self, error, lines):
        def validate(review, cluster):
            raise error

        _, validated = self.reviewed(lines, validate=validate)
        with self.assertRaises(Err) as raised:
            validated()
        return raised.exception.value

    def test_what_a_validator_raises_becomes_field_errors(self):
        lines = []
        one, other = FieldError("NOT_FOUND", "spec.host", "nobody has it"), FieldError("REQUIRED", "spec.port", "")
        expected = [("NOT_FOUND", "spec.host", "nobody has it"), ("REQUIRED", "spec.port", "")]
        self.assertEqual(self.refused(one, lines), expected[:1])
        self.assertEqual(self.refused(ExceptionGroup("both", [one, other]), lines), expected)
        self.assertEqual(lines, [])
        with self.assertRaises(ValueError):
            self.refused(ValueError("no such thing"), lines)
        self.assertIn("test_website.py", dict(lines[0][2])["traceback"])
        with self.assertRaises(ExceptionGroup):
            self.refused(ExceptionGroup("both", [one, ValueError("no such thing")]), lines)
        self.assertEqual(lines[-1][1], "ValueError: no such thing")

    def test_an_object_belongs_to_the_controller_that_its_owner_references_name(self):
        owner = {"metadata": {"uid": "u-1"}}
        for reference, expected in [({}, True), ({"controller": False}, False), ({"uid": "u-2"}, False)]:
            references = [{"uid": "u-1", "controller": True, **reference}]
            self.assertEqual(is_controlled_by({"metadata": {"ownerReferences": references}}, owner), expected)
        self.assertFalse(is_controlled_by(None, owner))


if __name__ == "__main__":
    unittest.main()
