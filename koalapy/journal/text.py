"""A journal as a JSON document without secrets, and the reverse.

Objects and shared values are stored once, in the table `values`, as {"is": class, field: value, ...}. Elsewhere they
are written as ["#", place]. A value without a JSON form is a list that begins with a word: ["tuple", ...]. Texts by a
user or program are hidden where they are secret or look so. Names that decisions depend on are kept.
"""

import functools
import importlib
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from types import FunctionType
from typing import Any

from koalapy.engine import Engine
from koalapy.journal.journal import Batch, JournalState
from koalapy.journal.secrets import HIDDEN, Secrets
from koalapy.journal.state import ROOMS, attributes, field_names, in_rooms
from koalapy.model.errors import RequestError
from koalapy.model.notification import Program, Webhook
from koalapy.model.request import ComponentRequest
from koalapy.model.settings import Settings
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scheduler.schedule import Policies

SCHEMA = "koala.journal/1"
# Fields with texts by users and programs. No decision of the engine depends on them.
WRITTEN = frozenset(
    {
        "account", "advice", "arguments", "command", "constraint", "details", "directory", "environment", "executable",
        "file", "files", "labels", "last", "message", "native", "notes", "paths", "pending_reason", "setup",
        "stage_in", "stage_out", "stage_out_to", "to", "values", "why", "words",
    }
)  # fmt: skip
_POLICY_ROOMS = (*ROOMS, "policies")

Document = dict[str, Any]
Load = Callable[[Settings], tuple[Policies, ScavengingPolicies]]


def dump(taken: JournalState, version: str) -> Document:
    """Return the document; `version`: koalapy's release. The largest journal takes seconds."""
    seen = _Writer(taken, Secrets())
    _document(seen, taken, version)
    return _document(_Writer(taken, Secrets(seen.environments), seen.shared), taken, version)


def _document(writer: "_Writer", taken: JournalState, version: str) -> Document:
    settings = writer.write(taken.start.settings)
    start = writer.write(taken.start)
    batches = [
        {
            "now": batch.now,
            "events": writer.each(batch.events),
            "commands": None if batch.commands is None else writer.each(batch.commands),
            "hints": writer.each(batch.hints),
        }
        for batch in taken.batches
    ]
    return {
        "schema": SCHEMA, "koalapy": version, "error": writer.hide(taken.error), "settings": settings, "start": start,
        "batches": batches, "values": writer.values,
    }  # fmt: skip


def load(document: Any, policies: Load) -> JournalState:
    """Return the journal of a document. `policies` loads the policies that the settings name.

    Raises RequestError if the document is no journal of this release.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise _no_journal("it does not begin with the schema " + SCHEMA)
    try:
        reader = _Reader(document["values"])
        settings = reader.read(document["settings"])
        if not isinstance(settings, Settings):
            raise ValueError("there are no settings")
        chosen, of_sweeps = policies(settings)
        reader.policies = _named(chosen, of_sweeps)
        start = reader.read(document["start"])
        if not isinstance(start, Engine):
            raise ValueError("it starts with no engine")
        batches = tuple(
            Batch(
                each["now"],
                [reader.read(event) for event in each["events"]],
                None if each["commands"] is None else tuple(reader.read(command) for command in each["commands"]),
                tuple(reader.read(hint) for hint in each["hints"]),
            )
            for each in document["batches"]
        )
        return JournalState(start, batches, chosen, of_sweeps, document["error"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ImportError, RecursionError) as error:
        raise _no_journal(f"{type(error).__name__}: {error}") from error


def _no_journal(why: str) -> RequestError:
    advice = "Give a file of `koala bugreport` or of the state directory's journals, and the koalapy that wrote it."
    return RequestError("no_journal", f"This is no journal that can be replayed: {why}.", advice)


def _named(policies: Policies, of_sweeps: ScavengingPolicies) -> dict[str, Any]:
    """Return the policies by the names that they have in a journal."""
    named = {"policies": policies, "sweeps": of_sweeps}
    named |= {f"order {name}": order for name, order in of_sweeps.orders.items()}
    named |= {each: getattr(of_sweeps, each) for each in ("fairshare", "idleness", "admission", "reclaim", "order")}
    return named | {"placement": policies.placement, "queueing": policies.queueing}


class _Writer:
    """The writer of one document. `environments`: the values of all environments that were written.

    `shared`: the ids of tuples that occur several times. The engine relies on the identity of such tuples.
    """

    def __init__(self, taken: JournalState, secrets: Secrets, shared: Collection[int] = ()) -> None:
        self.values: list[Any] = []
        self.environments: set[str] = set()
        self._secrets = secrets
        self.hide = functools.lru_cache(1 << 14)(secrets.hide)
        self.shared: set[int] = set()
        self._shared = shared
        self._tuples: dict[int, Any] = {}
        self._places: dict[int, int] = {}
        self._policies = {id(each): name for name, each in _named(taken.policies, taken.sweep_policies).items()}
        self._kept: list[Any] = []  # keeps these values alive, so that no other value gets the same id

    def each(self, values: Iterable[Any], written: bool = False) -> list[Any]:
        return [self.write(value, written) for value in values]

    def write(self, value: Any, written: bool = False) -> Any:
        """Return the JSON form of a value. `written`: it is part of a field with texts by users and programs."""
        kind = type(value)
        if kind is str:
            return self.hide(value) if written else value
        if value is None or kind is int or kind is bool:
            return value
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if (policy := self._policies.get(id(value))) is not None:
            return ["policy", policy]
        if isinstance(value, Enum):
            return ["enum", _name(kind), value.value]
        if isinstance(value, int):
            return [
                "number",
                _name(kind),
                int(value),
                *([name, self.write(each)] for name, each in vars(value).items()),
            ]
        if isinstance(value, tuple) and value:
            if id(value) in self._tuples:
                self.shared.add(id(value))
            self._tuples[id(value)] = value
            if id(value) not in self._shared:
                return self._tuple(value, written)
        elif kind is tuple:
            return ["tuple"]
        if kind is frozenset:
            return ["frozenset", *sorted(self.each(value, written), key=repr)]
        if isinstance(value, FunctionType):
            return ["function", _name(value)]
        place = self._places.get(id(value))
        return ["#", self._put(value, written) if place is None else place]

    def _put(self, value: Any, written: bool) -> int:
        self._places[id(value)] = place = len(self.values)
        self._kept.append(value)
        self.values.append(None)
        self.values[place] = self._entry(value, written)
        return place

    def _tuple(self, value: tuple[Any, ...], written: bool) -> list[Any]:
        if type(value) is tuple:
            return ["tuple", *self.each(value, written)]
        return ["named", _name(type(value)), *self.each(value, written)]

    def _entry(self, value: Any, written: bool) -> Any:
        kind = type(value)
        if isinstance(value, tuple):
            return self._tuple(value, written)
        if kind in (dict, Counter):
            return [kind.__name__, *([self.write(key), self.write(each, written)] for key, each in value.items())]
        if kind in (list, set):
            return [kind.__name__, *self.each(value, written)]
        if kind is deque:
            return ["deque", value.maxlen, *self.each(value, written)]
        if not in_rooms(kind, _POLICY_ROOMS):
            raise TypeError(f"a {kind.__module__}.{kind.__qualname__} has no form in a journal")
        shown = attributes(value)
        if kind is ComponentRequest:
            self.environments |= {content for _, content in value.environment}
            shown = shown | {"environment": tuple((name, HIDDEN) for name, _ in value.environment)}
            words = {"arguments": value.arguments, "native": value.native, "setup": value.setup}
            shown |= {name: tuple(self._secrets.hide_words(each)) for name, each in words.items()}
        if kind is Webhook:
            shown = {"url": HIDDEN}
        if kind is Program:
            shown = {"words": (*value.words[:1], *[HIDDEN for _ in value.words[1:]])}
        return {"is": _name(kind)} | {name: self.write(each, name in WRITTEN) for name, each in shown.items()}


def _name(kind: Any) -> str:
    if not in_rooms(kind, _POLICY_ROOMS):
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not of a room that decides")
    return f"{kind.__module__.removeprefix('koalapy.')}:{kind.__qualname__}"


class _Reader:
    """The reader of one document. It makes objects of the deciding packages only, and calls none of their code."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self._made: dict[int, Any] = {}
        self.policies: Mapping[str, Any] = {}

    def read(self, written: Any) -> Any:
        if not isinstance(written, list):
            if isinstance(written, dict):
                raise ValueError("a value stands outside of the table")
            return written
        match written:
            case ["#", int(place)]:
                return self._made[place] if place in self._made else self._make(place)
            case ["tuple", *rest]:
                return tuple([self.read(each) for each in rest])
            case ["named", str(name), *rest]:
                return tuple.__new__(_found(name, tuple), [self.read(each) for each in rest])
            case ["enum", str(name), value]:
                return _found(name, Enum)(value)
            case ["number", str(name), int(value), *rest]:
                number = int.__new__(_found(name, int), value)
                for attribute, each in rest:
                    setattr(number, attribute, self.read(each))
                return number
            case ["frozenset", *rest]:
                return frozenset([self.read(each) for each in rest])
            case ["function", str(name)]:
                return _found(name, FunctionType)
            case ["policy", str(name)]:
                return self.policies[name]
            case ["float", "inf" | "-inf" | "nan" as text]:
                return float(text)
        raise ValueError(f"{str(written)[:80]} is no value")

    def _make(self, place: int) -> Any:
        written = self._values[place]
        if isinstance(written, dict):
            return self._make_object(place, written)
        made: Any
        match written:
            case ["dict" | "Counter" as kind, *rest]:
                self._made[place] = made = {} if kind == "dict" else Counter()
                for key, each in rest:
                    made[self.read(key)] = self.read(each)
            case ["list", *rest]:
                self._made[place] = made = []
                made.extend([self.read(each) for each in rest])
            case ["set", *rest]:
                self._made[place] = made = {self.read(each) for each in rest}
            case ["deque", longest, *rest]:
                self._made[place] = made = deque([self.read(each) for each in rest], longest)
            case ["tuple" | "named", *_]:
                self._made[place] = made = self.read(written)
            case _:
                raise ValueError(f"value {place} is none")
        return made

    def _make_object(self, place: int, written: dict[str, Any]) -> Any:
        kind = _found(written["is"], object)
        self._made[place] = made = object.__new__(kind)
        names = field_names(kind)
        if names is not None and set(names) != written.keys() - {"is"}:
            others = ", ".join(sorted(set(names) ^ written.keys() - {"is"}))
            raise ValueError(f"a {written['is']} has other fields here: {others}")
        for name, each in written.items():
            if name != "is":
                object.__setattr__(made, name, self.read(each))
        return made


@functools.lru_cache(1 << 10)
def _found(name: str, kind: Any) -> Any:
    """Return the class or function of this name. Raises ValueError if it is not in a deciding package."""
    module, _, path = name.partition(":")
    if module.split(".")[0] not in _POLICY_ROOMS:
        raise ValueError(f"{name} is not of a room that decides")
    found: Any = importlib.import_module(f"koalapy.{module}")
    for part in path.split("."):
        found = getattr(found, part)
    right = isinstance(found, FunctionType) if kind is FunctionType else isinstance(found, type)
    if not right or not in_rooms(found, _POLICY_ROOMS) or (kind is not FunctionType and not issubclass(found, kind)):
        raise ValueError(f"{name} is not what a journal holds")
    return found
