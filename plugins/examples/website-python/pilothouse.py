"""A small helper: from the contract's records to typed objects and back.

It imports nothing of the host, so that tests can load it. wit/plugin.wit says what each member means, and so does
docs/contract.md of Pilothouse.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints

# Each call has memory of its own, which goes with it: a collection would only cost time.
gc.disable()

Object = dict[str, Any]


class Transient(Exception):
    """A failure that is retried with back-off."""


class Permanent(Exception):
    """A failure that is retried when the object, the configuration or something that was read changes."""


@dataclass(eq=False)
class FieldError(Exception):
    """What is wrong with one field; several are raised as an ExceptionGroup. The host adds the path and the value."""

    kind: str
    """"REQUIRED", "DUPLICATE", "FORBIDDEN", "NOT_FOUND" or "INVALID"."""
    path: str
    """For example "spec.ports[0].name"; "" means the object as a whole."""
    message: str


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
    """A kind that is read or written, and how."""

    kind: Kind
    access: list[str]
    """At least one: "read" with `get` and `list`, "owned" objects, "contributed" fields in objects of others."""
    fields: list[str] = field(default_factory=list)
    """The fields that are looked at beside the metadata, for example ".status.readyReplicas"; "." is everything."""
    scope: str = "Namespace"
    """In the primary's namespace, or in "Any"; objects without a namespace are in "Any"."""
    label_selector: str | None = None
    """Only objects that it matches, for example "app=web,tier in (a,b),!legacy"."""
    namespaces: list[str] = field(default_factory=list)
    """With "Any": only these namespaces."""
    names: list[str] = field(default_factory=list)
    """Only objects of these names."""
    optional: bool = False
    """Whether the plugin runs where the kind is not served: it sees nothing, and what it wants of it fails alone."""


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


@dataclass(frozen=True)
class Review:
    """What the host calls a defaulter and a validator with."""

    phase: str
    """"CREATE", "UPDATE", "DELETE" or "RECONCILE": why it is reviewed. The host does not ask about deletions today."""
    object: Object
    """None only when it is deleted."""
    old_object: Object | None
    """None unless it is updated or deleted."""
    configuration: Any = None
    user_info: UserInfo | None = None
    """None before a reconcile: nobody makes a request."""
    dry_run: bool = False
    """Whether nothing will be stored."""
    spec: Any = None
    """The spec with the controller's own type; None for a defaulter, whose object may have any form."""


@dataclass(frozen=True)
class UserInfo:
    username: str
    groups: list[str]


class Done:
    """A finalizer's answer: the object may go."""


@dataclass(frozen=True)
class Lifecycle:
    """Exceptions to the life of an owned object."""

    create_only: bool = False
    """Created when absent, then never changed."""
    keep: bool = False
    """Left in place when it is no longer desired, and when the primary goes."""
    recreate: bool = False
    """Deleted and created again where a changed field is immutable."""
    replace: bool = False
    """Deleted and created again whenever something else is desired than before; the controller lists it in `options`."""
    propagation: Literal["Background", "Foreground", "Orphan"] | None = None
    """What becomes of its dependents where the host deletes it; without it the host decides. Listed in `options`, too."""
    adopt: Literal["Never", "IfUnowned"] = "Never"
    """Whether an object of this name that belongs to nobody is taken over. Listed in `options`, too."""
    yields: Sequence[str] = ()
    """Fields, such as ".spec.replicas", that are left to who else sets them. Listed as "yield" in `options`."""
    after: Sequence[dict[str, str]] = ()
    """Owned objects (apiVersion, kind, name, namespace) that have to be Current before it is made or changed. Listed in `options`, too."""
    once: str | None = None
    """The token with which it is made once: when it is gone, it is made again with another one only. Listed in `options`, too."""

    def options(self) -> dict[str, Any]:
        """The options of the contract."""
        adopt = None if self.adopt == "Never" else self.adopt
        options = {
            "replace": self.replace,
            "propagation": self.propagation,
            "adopt": adopt,
            "yield": list(self.yields),
            "after": list(self.after),
            "once": self.once,
        }
        return {name: value for name, value in options.items() if value}


@dataclass(frozen=True)
class OwnedObject:
    """An owned object with exceptions to its life."""

    object: Object
    lifecycle: Lifecycle


@dataclass
class Outcome:
    """What should exist. What was desired before and is not here any more is deleted."""

    owned: list[Object | OwnedObject | None] = field(default_factory=list)
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
    """"True", "False" or "Unknown"."""
    reason: str
    message: str

    @classmethod
    def is_true(cls, type: str, reason: str, message: str = "") -> Condition:
        return cls(type, "True", reason, message)

    @classmethod
    def is_false(cls, type: str, reason: str, message: str = "") -> Condition:
        return cls(type, "False", reason, message)

    @classmethod
    def unknown(cls, type: str, reason: str, message: str = "") -> Condition:
        return cls(type, "Unknown", reason, message)

    @classmethod
    def ready(cls, reason: str, message: str = "") -> Condition:
        """`Ready` is the one that `kubectl wait --for=condition=Ready` and kstatus look at."""
        return cls.is_true("Ready", reason, message)

    @classmethod
    def not_ready(cls, reason: str, message: str = "") -> Condition:
        return cls.is_false("Ready", reason, message)


@dataclass(frozen=True)
class Event:
    type: str
    """"Normal" or "Warning"."""
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
    """One primary kind. `spec` is a dataclass whose fields are those of the object's spec, by the same names. A field may have
    a dataclass of its own, also in `list[T]`, `dict[str, T]` and `T | None`."""

    name: str
    kind: Kind
    spec: type
    reconcile: Callable[[Request, Cluster], Outcome]
    touches: list[Touch] = field(default_factory=list)
    finalizer: str | None = None
    """The finalizer's name, for example "example.com/website"; with it the component exports `finalizer`."""
    finalize: Callable[[Request, Cluster], Outcome | Done] | None = None
    """Called for an object that is being deleted: Done once it may go, or what should still exist until then."""
    apply_defaults: Callable[[Review, Cluster], Object] | None = None
    """The object with defaults filled in. The same again must change nothing."""
    validate: Callable[[Review, Cluster], list[str]] | None = None
    """Warnings. It raises what refuses the object."""
    options: list[str] = field(default_factory=list)
    """The options that desired objects may have, as in ["replace"]. A host that does not know one of them refuses the plugin."""

    def read(self, object: Object) -> Any:
        """The spec as an instance of its dataclass, and so are the dataclasses in it. A field that is missing and has no default
        is the user's mistake."""
        return _read_fields(self.spec, object.get("spec", {}), "spec")


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
            return {
                "kind": kind(it.kind),
                "access": it.access,
                "fields": it.fields,
                "scope": it.scope,
                "labelSelector": it.label_selector,
                "namespaces": it.namespaces,
                "names": it.names,
                "optional": it.optional,
            }

        controllers = [
            {
                "name": it.name,
                "kind": kind(it.kind),
                "fields": [f".spec.{member.name}" for member in fields(it.spec)],
                "touches": [touch(other) for other in it.touches],
                "finalizer": it.finalizer,
                "defaulter": it.apply_defaults is not None,
                "validator": it.validate is not None,
                "options": it.options,
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
        return self.controller_for(object["apiVersion"], object["kind"])

    def controller_for(self, api_version: str, kind: str) -> Controller:
        for controller in self.controllers:
            if (controller.kind.api_version, controller.kind.kind) == (api_version, kind):
                return controller
        raise LookupError(f"there is no controller for {api_version} {kind}")


def _read_fields(of: type, given: Any, path: str) -> Any:
    """A dataclass from an object of JSON; fields that it does not have are left out."""
    if not isinstance(given, dict):
        raise Permanent(f"{path} is not an object")
    for it in fields(of):
        if it.name not in given and it.default is MISSING and it.default_factory is MISSING:
            raise Permanent(f"{path}.{it.name} is missing")
    hints = _hints(of)
    names = [it.name for it in fields(of) if it.name in given]
    return of(**{name: _read_value(hints[name], given[name], f"{path}.{name}") for name in names})


def _read_value(hint: Any, given: Any, path: str) -> Any:
    """A value of JSON with the dataclasses that its annotation names: itself, in `list[T]`, `dict[str, T]` and `T | None`."""
    if given is None:
        return None
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_fields(hint, given, path)
    origin, members = get_origin(hint), [it for it in get_args(hint) if it is not type(None)]
    if origin in (Union, UnionType) and len(members) == 1:
        return _read_value(members[0], given, path)
    if origin is list and isinstance(given, list):
        return [_read_value(members[0], it, f"{path}[{index}]") for index, it in enumerate(given)]
    if origin is dict and isinstance(given, dict):
        return {key: _read_value(members[-1], it, f"{path}[{key}]") for key, it in given.items()}
    return given


@functools.cache
def _hints(of: type) -> dict[str, Any]:
    """The annotations of a dataclass, which are strings where its module says `from __future__ import annotations`."""
    return get_type_hints(of)


def is_controlled_by(object: Object | None, owner: Object) -> bool:
    """Whether an object that was read belongs to this primary."""
    references = [] if object is None else object["metadata"].get("ownerReferences", [])
    return any(it.get("controller") and it.get("uid") == owner["metadata"].get("uid") for it in references)


def exports(plugin: Plugin, *, clock: Any, cluster: Any, log: Any, types: Any, Err: type) -> tuple[type, type]:
    """The classes that a component exports, over the generated modules of the host's interfaces."""
    host = _Host(clock, cluster, log, types)

    class Manifest:
        def describe(self, configuration: str | None) -> str:
            return plugin.manifest()

    class Reconciler:
        def reconcile(self, request: Any) -> Any:
            return _answered(request, plugin, host, Err, lambda it, own: _outcome(it.reconcile(own, host), types))

    return Manifest, Reconciler


def finalizer_export(
    plugin: Plugin, finalizer: Any, *, clock: Any, cluster: Any, log: Any, types: Any, Err: type
) -> type:
    """The class that a component with a finalizer exports besides; `finalizer` is the generated module of the interface."""
    host = _Host(clock, cluster, log, types)

    def finalized(controller: Controller, request: Request) -> Any:
        finalization = _function(controller, "finalize")(request, host)
        if isinstance(finalization, Done):
            return finalizer.Finalization_Done()
        return finalizer.Finalization_Pending(_outcome(finalization, types))

    class Finalizer:
        def finalize(self, request: Any) -> Any:
            return _answered(request, plugin, host, Err, finalized)

    return Finalizer


def admission_exports(
    plugin: Plugin, admission: Any, *, clock: Any, cluster: Any, log: Any, types: Any, Err: type
) -> tuple[type, type]:
    """The classes that a component with admission exports besides; `admission` is the generated module of the interface."""
    host = _Host(clock, cluster, log, types)

    def reviewed(review: Any, call: Callable[[Controller, Review], Any]) -> Any:
        try:
            api_version = Kind(review.kind.group, review.kind.version, review.kind.kind).api_version
            controller = plugin.controller_for(api_version, review.kind.kind)
            user = review.user_info
            own = Review(
                phase=review.phase.name,
                object=None if review.object is None else json.loads(review.object),
                old_object=None if review.old_object is None else json.loads(review.old_object),
                configuration=json.loads(review.configuration),
                user_info=None if user is None else UserInfo(user.username, user.groups),
                dry_run=review.dry_run,
            )
            with _printing(host):
                return call(controller, own)
        except Exception as error:
            errors = _field_errors(error)
            if errors is None:
                _log_bug(error, host)
                raise
            kinds = admission.FieldErrorKind
            raise Err([admission.FieldError(kinds[it.kind], it.path, it.message) for it in errors]) from None

    def validated(controller: Controller, review: Review) -> list[str]:
        spec = None if review.object is None else controller.read(review.object)
        return _function(controller, "validate")(replace(review, spec=spec), host) or []

    class Defaulter:
        def apply_defaults(self, review: Any) -> str:
            return reviewed(review, lambda it, own: json.dumps(_function(it, "apply_defaults")(own, host)))

    class Validator:
        def validate(self, review: Any) -> list[str]:
            return reviewed(review, validated)

    return Defaulter, Validator


def _function(controller: Controller, name: str) -> Any:
    """What a controller need not have."""
    found = getattr(controller, name)
    if found is None:
        raise LookupError(f"the controller {controller.name} has no function {name}")
    return found


def _answered(
    request: Any, plugin: Plugin, host: _Host, Err: type, call: Callable[[Controller, Request], Any]
) -> Any:
    """A call with a request. What an author means to raise becomes the contract's failures; any other exception is a bug."""
    types = host.types
    try:
        object = json.loads(request.object)
        controller = plugin.controller_of(object)
        own = Request(object, controller.read(object), json.loads(request.configuration), request.attempt)
        with _printing(host):
            return call(controller, own)
    except Transient as failure:
        raise Err(types.Failure_Transient(str(failure))) from None
    except Permanent as failure:
        raise Err(types.Failure_Permanent(str(failure))) from None
    except Exception as error:
        _log_bug(error, host)
        raise


def _field_errors(error: BaseException) -> list[FieldError] | None:
    """What refuses an object; None where an exception among them is a bug."""
    match error:
        case ExceptionGroup(exceptions=errors):
            found = [_field_errors(it) for it in errors]
            return None if None in found else [one for it in found for one in it]
        case FieldError():
            return [error]
        case Transient() | Permanent():
            return [FieldError("INVALID", "", str(error))]
        case _:
            return None


def _log_bug(error: BaseException, host: _Host) -> None:
    """Logs what an author did not mean to raise. Raised again, it is no answer of the contract: the call traps, the host blames
    the plugin rather than the object, and its failure has the message."""
    match error:
        case ExceptionGroup(exceptions=errors):
            for it in errors:
                _log_bug(it, host)
        case FieldError() | Transient() | Permanent():
            pass
        case _:
            host.log("ERROR", f"{type(error).__name__}: {error}", traceback=_traceback(error))


def _traceback(error: BaseException) -> str:
    """Where an exception comes from. The module traceback would look for the lines of the source, and there are no files."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}" for frame, line in frames]
    return "\n".join(lines)


class _Printed(io.TextIOBase):
    """A file whose lines go to the host's log: a component has no standard output."""

    def __init__(self, host: _Host, level: str) -> None:
        self._host, self._level, self._rest = host, level, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._host.log(self._level, line)
        return len(text)

    def end(self) -> None:
        if self._rest:
            self.write("\n")


@contextlib.contextmanager
def _printing(host: _Host) -> Iterator[None]:
    """Has what is printed in a call go to the host's log; standard error as warnings."""
    out, err = _Printed(host, "INFO"), _Printed(host, "WARN")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            yield
        finally:
            out.end()
            err.end()


class _Host:
    """The host's interfaces as a `Cluster`."""

    def __init__(self, clock: Any, cluster: Any, log: Any, types: Any) -> None:
        self._clock, self._cluster, self._log, self.types = clock, cluster, log, types

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        found = self._cluster.get(self._kind(kind), namespace, name)
        return None if found is None else json.loads(found)

    def list(
        self, kind: Kind, namespace: str | None = None, label_selector: str | None = None, limit: int | None = None
    ) -> list[Object]:
        options = self.types.ListOptions(namespace, label_selector, [], limit)
        return [json.loads(it) for it in self._cluster.list(self._kind(kind), options)]

    def now(self, granularity: int) -> int:
        return self._clock.now(granularity)

    def reached(self, moment: int) -> bool:
        return self._clock.reached(moment)

    def log(self, level: str, message: str, **fields: str) -> None:
        self._log.log(self._log.Level[level], message, [*fields.items()])

    def _kind(self, kind: Kind) -> Any:
        return self.types.GroupVersionKind(kind.group, kind.version, kind.kind)


# The flags of the contract, in the order of wit/plugin.wit.
_CREATE_ONLY, _KEEP, _RECREATE = 1, 2, 4

_STATUSES = ("True", "False", "Unknown")
_EVENTS = ("Normal", "Warning")


def _word(of: str, word: str, words: tuple[str, ...]) -> str:
    """The contract's name of a word of Kubernetes."""
    if word not in words:
        raise ValueError(f"{of} says {word!r}, which is none of {', '.join(words)}")
    return word.upper()


def _outcome(outcome: Outcome, types: Any) -> Any:
    def desired(given: Object | OwnedObject, ownership: Any) -> Any:
        it = given if isinstance(given, OwnedObject) else OwnedObject(given, Lifecycle())
        exceptions = it.lifecycle
        flags = exceptions.create_only * _CREATE_ONLY | exceptions.keep * _KEEP | exceptions.recreate * _RECREATE
        return types.Desired(json.dumps(it.object), ownership, types.Lifecycle(flags), json.dumps(exceptions.options()))

    if any(isinstance(it, OwnedObject) for it in outcome.contributed):
        raise TypeError("a contributed object has a lifecycle, which only owned objects have")

    owned = [desired(it, types.Ownership.OWNED) for it in outcome.owned if it is not None]
    contributed = [desired(it, types.Ownership.CONTRIBUTED) for it in outcome.contributed]
    return types.Outcome(
        desired=owned + contributed,
        status=None if outcome.status is None else json.dumps(outcome.status),
        conditions=[
            types.Condition(it.type, types.ConditionStatus[_word("a condition", it.status, _STATUSES)], it.reason, it.message)
            for it in outcome.conditions
        ],
        events=[
            types.Event(types.EventType[_word("an event", it.type, _EVENTS)], it.reason, it.message) for it in outcome.events
        ],
        requeue_after=outcome.requeue_after,
        extensions=None,
    )
