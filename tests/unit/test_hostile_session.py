"""A program that speaks the KCM's protocol and talks nonsense loses its session at once, and koalad says why."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile_kcm
import linked
import pytest
from hostile_kcm import event, welcome
from koalapy_adapters.connections.command import CommandConnection

from koalapy.model.commands import WatchCluster
from koalapy.model.errors import TransientError
from koalapy.model.events import ClusterLost
from koalapy.model.identity import AttemptId, JobId, tag_of

TAG = tag_of(linked.INSTANCE, AttemptId(JobId(1), 0, 1))
MEASURED = {
    "type": "measured", "measured_at": 5, "total": 8, "idle": 4, "ours": 0, "others": 4, "waiting_local": 0,
    "allocated": [], "pending": [], "free_nodes": [],
}  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Callable[[list[Any]], linked.Haven]]:
    """A link to a program that says these messages."""
    havens: list[linked.Haven] = []

    def connect(said: list[Any]) -> linked.Haven:
        haven = linked.Haven(tmp_path)
        argv = hostile_kcm.command(tmp_path / "script.json", said)
        haven.connection = linked.Spied(CommandConnection(argv))
        haven.make()
        havens.append(haven)
        return haven

    yield connect
    for haven in havens:
        haven.close()


def lost(haven: linked.Haven) -> ClusterLost:
    haven.link.start()
    found: ClusterLost = haven.ear.event(ClusterLost)
    return found


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ([welcome(clock=None)], "welcome.clock"),
        ([welcome(newest_number=1 << 62)], "welcome.newest_number"),
        ([welcome(), event(1, **{**MEASURED, "idle": None})], "measured.idle"),
        ([welcome(), event(1, **{**MEASURED, "free_nodes": "abc"})], "measured.free_nodes"),
        ([welcome(), {"type": "event", "number": "1", "body": {}}], "event.number"),
        ([welcome(), event(1, type="measure_failed", at=5, error=[1])], "measure_failed.error"),
        ([welcome(), {"type": "put_key", "space": 5, "key": "a", "value": "b"}], "put_key.space"),
        ([welcome(), {"type": []}], "not a message"),
        (
            [welcome(), event(1, type="report", tag=TAG, batch_id={"a": 1}, phase="running", nodes=[])],
            "report.batch_id",
        ),
        (["this is no frame"], "not a frame"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_message_that_does_not_pass_ends_the_session(hostile: Any, said: list[Any], place: str) -> None:
    haven = hostile(said)
    why = lost(haven).reason
    assert (why.code, why.whose) == ("garbled", "ours")
    assert place in why.message
    assert haven.link.status().state == "unreachable"
    assert haven.link.status().reason == why


def test_nested_until_the_stack_ends(hostile: Any) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    haven = hostile([welcome(), "J" + len(deep).to_bytes(4, "big").decode("latin-1") + deep])
    assert lost(haven).reason.code in ("garbled", "link_failed")


def test_a_mistake_of_ours_ends_the_session_and_is_told(hostile: Any, tmp_path: Path) -> None:
    """Whoever is handed a key fails: no cluster stays `up` over it with nobody behind it."""
    haven = hostile([welcome(), {"type": "put_key", "space": TAG, "key": "a", "value": "b"}])

    class Fails(list[Any]):
        def append(self, item: Any) -> None:
            raise ZeroDivisionError("mistaken")

    haven.put = Fails()
    why = lost(haven).reason
    assert (why.code, why.whose) == ("link_failed", "ours")
    assert "ZeroDivisionError" in why.message
    assert haven.link.status().state == "unreachable"
    haven.link.hint(WatchCluster(cluster="here", urgent=True))  # goes nowhere, and breaks nothing
    with pytest.raises(TransientError):
        haven.link.ask(lambda number: None, 1.0)
