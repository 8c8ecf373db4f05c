"""From an event to its decision: one table, whose functions are `(core, now, event)`, and two calls."""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, get_args, get_type_hints

import pytest
from engine_play import UNREACHABLE, Play, present

import koalapy
from koalapy.core.core import Core
from koalapy.engine import OWNERS, REACTIONS, Engine, Reaction
from koalapy.model import events
from koalapy.model.attempt import OwnerKind
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import Event, MessageReceived, NeighbourMessage
from koalapy.model.facts import Fact
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId
from koalapy.model.intervals import NONE
from koalapy.model.lease import Origin
from koalapy.model.neighbour import Relation
from koalapy.model.notification import NotificationId, NotifyOn
from koalapy.model.notification import Outcome as NotificationOutcome
from koalapy.model.request import ComponentRequest
from koalapy.model.sent import Sent, SentChange
from koalapy.model.units import MINUTE, Instant

ROOT = Path(koalapy.__file__).parent
DECIDING = (
    "core",
    "attempts",
    "coallocation",
    "scavenging",
    "scheduler",
    "sites",
    "broker",
    "information",
    "engine.py",
)
KINDS = (*get_args(Event), *get_args(NeighbourMessage))  # a message is the content of an event
REACTED_TO = {*KINDS} - {MessageReceived}
NAMES = frozenset(kind.__name__ for kind in KINDS)
TABLE = [*REACTIONS.items(), *((fact, reactions) for (_, fact), reactions in OWNERS.items())]
PAIRS = [(kind, reaction) for kind, reactions in TABLE for reaction in reactions]


def test_the_table_has_every_event_and_nothing_else() -> None:
    assert set(REACTIONS) == REACTED_TO
    assert all(REACTIONS.values())


def test_the_table_of_owners_has_every_kind_and_facts_alone() -> None:
    assert {kind for kind, _ in OWNERS} == {*OwnerKind}
    assert {fact for _, fact in OWNERS} <= {*get_args(Fact)}
    assert all(OWNERS.values())


@pytest.mark.parametrize(("kind", "reaction"), PAIRS, ids=lambda each: each.__name__)
def test_a_reaction_takes_core_now_and_event_and_returns_nothing(kind: type, reaction: Reaction) -> None:
    assert list(inspect.signature(reaction).parameters) == ["core", "now", "event"]
    hints = get_type_hints(reaction)
    assert (hints["core"], hints["now"], hints["return"]) == (Core, Instant, type(None))
    assert kind in (get_args(hints["event"]) or (hints["event"],))


@pytest.mark.parametrize(("kind", "reaction"), PAIRS, ids=lambda each: each.__name__)
def test_a_reaction_does_more_than_to_hand_its_arguments_on(kind: type, reaction: Reaction) -> None:
    (made,) = ast.parse(inspect.getsource(reaction)).body
    assert isinstance(made, ast.FunctionDef)
    first, *others = [each for each in made.body if ast.get_docstring(made) is None or each is not made.body[0]]
    call = first.value if isinstance(first, ast.Expr | ast.Return) else None
    handed = [each.id for each in call.args if isinstance(each, ast.Name)] if isinstance(call, ast.Call) else []
    assert others or "event" not in handed


def test_there_is_one_table() -> None:
    """No other dictionary of the deciding rooms has events as its keys, and no `match` distinguishes them."""
    assert list(tables()) == ["engine.py"]


def tables() -> Iterator[str]:
    places = [ROOT / room for room in DECIDING]
    for path in (path for place in places for path in ([place] if place.suffix else sorted(place.rglob("*.py")))):
        for node in ast.walk(ast.parse(path.read_text())):
            keys = [each.id for each in node.keys if isinstance(each, ast.Name)] if isinstance(node, ast.Dict) else []
            cases = [node.cls.id] if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name) else []
            if NAMES & {*keys, *cases}:
                yield str(path.relative_to(ROOT))


@pytest.mark.parametrize("kind", sorted(REACTED_TO, key=str), ids=lambda kind: kind.__name__)
def test_from_an_event_to_its_decision_there_are_two_calls(kind: type) -> None:
    """That of `handle`, and its own of what decides: nothing lies between them."""
    play = Play()
    job = play.job(play.submit(ComponentRequest(processors=1, executable="true")))
    event = of_kind(kind, play, AttemptId(job.id, 0, 1))
    if kind is not events.NeighbourJoined:
        play.apply(events.NeighbourJoined(neighbour="lyon", relation=Relation.SIBLING))
    called: list[tuple[CodeType, CodeType | None]] = []

    def watch(frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            called.append((frame.f_code, frame.f_back.f_code if frame.f_back is not None else None))

    sys.setprofile(watch)
    try:
        play.engine.handle(play.now, [event])
    finally:
        sys.setprofile(None)
    for reaction in REACTIONS[kind]:
        assert (code_of(reaction), Engine.handle.__code__) in called


def code_of(reaction: Any) -> CodeType:
    found = reaction.__code__
    assert isinstance(found, CodeType)
    return found


def of_kind(kind: type, play: Play, attempt: AttemptId) -> Any:
    """An event of this kind, of a job and a cluster that are there."""
    job, state = play.job(attempt.job), play.measurement("alpha").state
    known: dict[str, Any] = {
        "request": job.request, "owner": "me", "job": attempt.job, "epoch": 2, "last_number": 9, "version": "22.05",
        "reason": UNREACHABLE, "state": state, "attempt": attempt, "files": 1, "size": 1, "batch_id": "7",
        "at": play.now, "phase": "running", "spans": (), "work": (job,), "before": play.now, "records": True,
        "sweep": JobId(77), "results": (), "numbers": NONE, "wanted": 3, "launchers": (), "host": "node1",
        "cluster": present(job).cluster, "neighbour": "lyon", "instance": "zyxwv", "number": 1, "processors": 7,
        "relation": Relation.SIBLING, "notification": NotificationId(job.id, NotifyOn.DONE, 0),
        "outcome": NotificationOutcome.SENT, "answers": (), "lease": 1, "lent": True, "walltime": MINUTE,
        "lasts": MINUTE, "charge": 0, "change": SentChange.HOLD, "sent": Sent(),
        "origin": Origin("lyon", 1, 1), "dttl": 3, "within": MINUTE, "pilot": attempt.job,
    }  # fmt: skip
    special: dict[type, dict[str, Any]] = {
        events.BatchStatusSeen: {"state": "running"},
        events.OutputKept: {"job": job},
        events.FilesStaged: {"version": "1"},
        events.ClusterJoined: {"settings": ClusterSettings(name="delta", batch="slurm")},
        events.ClusterChanged: {"settings": ClusterSettings(name="alpha", batch="slurm", exclusive=True)},
        events.ClusterLeft: {"name": "alpha"},
        events.ParametersEnded: {"attempt": AttemptId(JobId(FIRST_LAUNCHER), 0, 1)},  # no Launcher of another sweep
    }
    fields = inspect.signature(kind).parameters
    needed = [name for name, field in fields.items() if field.default is inspect.Parameter.empty or name == "cluster"]
    made = kind(**{name: (known | special.get(kind, {}))[name] for name in needed})
    if kind not in get_args(NeighbourMessage):
        return made
    return MessageReceived(neighbour="lyon", instance="zyxwv", number=1, message=made)
