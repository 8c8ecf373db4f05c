"""A program that uses the KCM's protocol and sends nonsense loses its session at once, and koalad reports why."""

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
def hostile(tmp_path: Path) -> Iterator[Callable[[list[Any]], linked.LinkTestbed]]:
    """A function that connects a link to a program which sends the given messages."""
    made: list[linked.LinkTestbed] = []

    def connect(messages: list[Any]) -> linked.LinkTestbed:
        testbed = linked.LinkTestbed(tmp_path)
        argv = hostile_kcm.command(tmp_path / "script.json", messages)
        testbed.connection = linked.SpyConnection(CommandConnection(argv))
        testbed.make()
        made.append(testbed)
        return testbed

    yield connect
    for testbed in made:
        testbed.close()


def lost(testbed: linked.LinkTestbed) -> ClusterLost:
    testbed.link.start()
    found: ClusterLost = testbed.recorder.event(ClusterLost)
    return found


@pytest.mark.parametrize(
    ("messages", "place"),
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
def test_an_invalid_message_ends_the_session(hostile: Any, messages: list[Any], place: str) -> None:
    testbed = hostile(messages)
    why = lost(testbed).reason
    assert (why.code, why.whose) == ("garbled", "ours")
    assert place in why.message
    assert testbed.link.status().state == "unreachable"
    assert testbed.link.status().reason == why


def test_a_deeply_nested_message_ends_the_session(hostile: Any) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    testbed = hostile([welcome(), "J" + len(deep).to_bytes(4, "big").decode("latin-1") + deep])
    assert lost(testbed).reason.code in ("garbled", "link_failed")


def test_an_exception_in_koalad_ends_the_session_with_a_reason(hostile: Any, tmp_path: Path) -> None:
    """The receiver of keys fails; the cluster is not shown as connected without a session."""
    testbed = hostile([welcome(), {"type": "put_key", "space": TAG, "key": "a", "value": "b"}])

    class Fails(list[Any]):
        def append(self, item: Any) -> None:
            raise ZeroDivisionError("unexpected")

    testbed.put = Fails()
    why = lost(testbed).reason
    assert (why.code, why.whose) == ("link_failed", "ours")
    assert "ZeroDivisionError" in why.message
    assert testbed.link.status().state == "unreachable"
    testbed.link.hint(WatchCluster(cluster="here", urgent=True))  # it is dropped
    with pytest.raises(TransientError):
        testbed.link.ask(lambda number: None, 1.0)
