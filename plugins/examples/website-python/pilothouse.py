"""A small helper: from the contract's records to typed objects and back.

It imports nothing of the host, so that tests can load it. wit/plugin.wit and docs/contract.md say what each member means.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol

# Each call has memory of its own, which goes with it: a collection would only cost time.
gc.disable()

Object = dict[str, Any]


class Transient(Exception):
    """A failure that is retried with back-off."""


class Permanent(Exception):
    """A failure that is retried when the object, the configuration or something that was read changes."""


@dataclass(frozen=True)
class Kind:
    """A kind in one version; the core group is ""."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True)
class Touch:
    """A kind that is read or written."""

    kind: Kind
    access: list[str]
    fields: list[str] = field(default_factory=list)
    scope: str = "Namespace"


@dataclass(frozen=True)
class Request:
    """What the host calls a controller with. `spec` has the controller's own type."""

    object: Object
    spec: Any
    configuration: Any
    attempt: int

    @property
    def name(self) -> str:
        return self.object["metadata"]["name"]

    @property
    def namespace(self) -> str:
        return self.object["metadata"].get("namespace", "")


@dataclass
class Outcome:
    """What should exist. What was desired before and is not here any more is deleted."""

    owned: list[Object | None] = field(default_factory=list)
    contributed: list[Object] = field(default_factory=list)
    status: Object | None = None
    conditions: list[Condition] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requeue_after: int | None = None
    """Milliseconds."""


@dataclass(frozen=True)
class Condition:
    type: str
    status: str
    """"TRUE", "FALSE" or "UNKNOWN"."""
    reason: str
    message: str


@dataclass(frozen=True)
class Event:
    type: str
    """"NORMAL" or "WARNING"."""
    reason: str
    message: str


class Cluster(Protocol):
    """The host's cache and clock. Each read is a dependency: when it would answer otherwise, the object is reconciled again."""

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None: ...

    def list(
        self, kind: Kind, namespace: str | None = None, label_selector: str | None = None, limit: int | None = None
    ) -> list[Object]: ...

    def now(self, granularity: int) -> int: ...

    def reached(self, moment: int) -> bool: ...

    def log(self, level: str, message: str, **fields: str) -> None: ...


@dataclass(frozen=True)
class Controller:
    """One primary kind. `spec` is a dataclass whose fields are those of the object's spec, by the same names."""

    name: str
    kind: Kind
    spec: type
    reconcile: Callable[[Request, Cluster], Outcome]
    touches: list[Touch] = field(default_factory=list)

    def read(self, object: Object) -> Any:
        """The spec as an instance of its dataclass. A field that is missing and has no default is the user's mistake."""
        given = object.get("spec", {})
        missing = [
            it.name
            for it in fields(self.spec)
            if it.name not in given and it.default is MISSING and it.default_factory is MISSING
        ]
        if missing:
            raise Permanent(f"spec.{missing[0]} is missing")
        return self.spec(**{it.name: given[it.name] for it in fields(self.spec) if it.name in given})


@dataclass(frozen=True)
class Plugin:
    name: str
    version: str
    description: str
    controllers: list[Controller]
    crds: list[str] = field(default_factory=list)

    def manifest(self) -> str:
        def kind(it: Kind) -> Object:
            return {"group": it.group, "version": it.version, "kind": it.kind}

        def touch(it: Touch) -> Object:
            return {"kind": kind(it.kind), "access": it.access, "fields": it.fields, "scope": it.scope}

        controllers = [
            {
                "name": it.name,
                "kind": kind(it.kind),
                "fields": [f".spec.{member.name}" for member in fields(it.spec)],
                "touches": [touch(other) for other in it.touches],
            }
            for it in self.controllers
        ]
        return json.dumps(
            {
                "name": self.name,
                "version": self.version,
                "description": self.description,
                "controllers": controllers,
                "crds": self.crds,
            }
        )

    def controller_of(self, object: Object) -> Controller:
        for controller in self.controllers:
            kind = controller.kind
            if (kind.api_version, kind.kind) == (object["apiVersion"], object["kind"]):
                return controller
        raise LookupError(f"there is no controller for {object['apiVersion']} {object['kind']}")


def exports(plugin: Plugin, *, clock: Any, cluster: Any, log: Any, types: Any, Err: type) -> tuple[type, type]:
    """The classes that a component exports, over the generated modules of the host's interfaces."""
    host = _Host(clock, cluster, log, types)

    class Manifest:
        def describe(self, configuration: str | None) -> str:
            return plugin.manifest()

    class Reconciler:
        def reconcile(self, request: Any) -> Any:
            try:
                object = json.loads(request.object)
                controller = plugin.controller_of(object)
                own = Request(object, controller.read(object), json.loads(request.configuration), request.attempt)
                return _outcome(controller.reconcile(own, host), types)
            except Transient as failure:
                raise Err(types.Failure_Transient(str(failure))) from None
            except Permanent as failure:
                raise Err(types.Failure_Permanent(str(failure))) from None
            except Exception as error:
                # A bug of the plugin: a trap would say nothing.
                message = f"{type(error).__name__}: {error}"
                host.log("ERROR", message, traceback=_traceback(error))
                raise Err(types.Failure_Permanent(f"the plugin raised {message}")) from None

    return Manifest, Reconciler


def _traceback(error: Exception) -> str:
    """Where an exception comes from. The module traceback would look for the lines of the source, and there are no files."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}" for frame, line in frames]
    return "\n".join(lines)


class _Host:
    """The host's interfaces as a `Cluster`."""

    def __init__(self, clock: Any, cluster: Any, log: Any, types: Any) -> None:
        self._clock, self._cluster, self._log, self._types = clock, cluster, log, types

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        found = self._cluster.get(self._kind(kind), namespace, name)
        return None if found is None else json.loads(found)

    def list(
        self, kind: Kind, namespace: str | None = None, label_selector: str | None = None, limit: int | None = None
    ) -> list[Object]:
        options = self._types.ListOptions(namespace, label_selector, [], limit)
        return [json.loads(it) for it in self._cluster.list(self._kind(kind), options)]

    def now(self, granularity: int) -> int:
        return self._clock.now(granularity)

    def reached(self, moment: int) -> bool:
        return self._clock.reached(moment)

    def log(self, level: str, message: str, **fields: str) -> None:
        self._log.log(self._log.Level[level], message, [*fields.items()])

    def _kind(self, kind: Kind) -> Any:
        return self._types.GroupVersionKind(kind.group, kind.version, kind.kind)


def _outcome(outcome: Outcome, types: Any) -> Any:
    def desired(object: Object, ownership: Any) -> Any:
        return types.Desired(json.dumps(object), ownership, types.Lifecycle(0), "{}")

    owned = [desired(it, types.Ownership.OWNED) for it in outcome.owned if it is not None]
    contributed = [desired(it, types.Ownership.CONTRIBUTED) for it in outcome.contributed]
    return types.Outcome(
        desired=owned + contributed,
        status=None if outcome.status is None else json.dumps(outcome.status),
        conditions=[
            types.Condition(it.type, types.ConditionStatus[it.status], it.reason, it.message) for it in outcome.conditions
        ],
        events=[types.Event(types.EventType[it.type], it.reason, it.message) for it in outcome.events],
        requeue_after=outcome.requeue_after,
        extensions=None,
    )
