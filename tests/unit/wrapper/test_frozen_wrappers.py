"""Wrappers that an older koalapy has submitted, under the KCM of today: served, or refused in words.

The pushed files in tests/data/wrappers are frozen at each release by `tests/freeze-wrapper VERSION`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kcm_connection as far
import pytest
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.koalad import Cancel, Release

FROZEN = sorted((Path(__file__).parents[2] / "data" / "wrappers").glob("*.pyz"))
REFUSED = ("0.1.0", "relay-2")  # they use another relay protocol
SERVED = [path for path in FROZEN if path.stem not in REFUSED]
TAG = far.TAGS[0]
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done"


class FrozenKcm(far.Koalad):
    """A connection to the KCM of a frozen file. It passes over messages that have another name today."""

    def _next(self, deadline: float) -> Any:
        while True:
            try:
                return super()._next(deadline)
            except MessageError:
                pass


@pytest.fixture(params=["tcp", "files"])
def relay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def upgrade(tmp_path: Path, relay: str) -> Iterator[Callable[..., Any]]:
    """The KCM of a pushed file at the same shared directory, one after the other; with it all is ended at last."""
    opened: list[Any] = []

    def open_one(pyz: Path | None = None, known: list[list[str]] | None = None) -> Any:
        if opened:
            opened[-1].process.kill()
            opened[-1].ended()
        if pyz is not None:
            opened.append(FrozenKcm(tmp_path / "shared", pyz))
        else:
            today = tmp_path / "today.pyz"
            today.write_bytes(packed().data)
            opened.append(far.Koalad(tmp_path / "shared", today))
        assert opened[-1].hello(epoch=len(opened), known=known or [], relay=relay).error is None
        return opened[-1]

    yield open_one
    opened[-1].request(Cancel, TAG, force=True)
    opened[-1].gone(TAG)
    opened[-1].hang_up()


def test_the_first_release_is_frozen() -> None:
    assert "0.1.0" in [path.stem for path in FROZEN]


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.stem)
def test_a_program_that_runs_when_koalapy_is_replaced_runs_on_and_its_end_is_known(
    upgrade: Callable[..., Any], frozen: Path
) -> None:
    before = upgrade(frozen)
    submitted = before.submit(TAG, UNTIL_GO)
    release(before)
    before.report(TAG, "running")
    today = upgrade(known=[[TAG, submitted.batch_id]])
    (today.shared / far.INSTANCE / TAG / "work" / "go").touch()
    ended = today.report(TAG, "ended")
    assert (ended.ending, ended.exit_status, ended.error) == ("exited", 0, None)


@pytest.mark.parametrize("frozen", SERVED, ids=lambda path: path.stem)
def test_a_wrapper_that_waits_at_its_barrier_is_served_by_the_new_kcm(
    upgrade: Callable[..., Any], frozen: Path
) -> None:
    before = upgrade(frozen)
    submitted = before.submit(TAG, "exit 0")
    before.report(TAG, "at_barrier")
    today = upgrade(known=[[TAG, submitted.batch_id]])
    release(today)
    assert (today.report(TAG, "ended").exit_status, today.report(TAG, "ended").ending) == (0, "exited")


@pytest.mark.parametrize("frozen", [path for path in FROZEN if path.stem in REFUSED], ids=lambda path: path.stem)
def test_a_wrapper_of_another_protocol_is_refused_in_words_that_koala_shows(
    upgrade: Callable[..., Any], frozen: Path
) -> None:
    """Its program has not begun, and never does; its batch job ends by koalad's cancel."""
    before = upgrade(frozen)
    submitted = before.submit(TAG, "touch began")
    before.report(TAG, "at_barrier")
    today = upgrade(known=[[TAG, submitted.batch_id]])
    ended = today.report(TAG, "ended")
    assert ended.error["code"] == "other_version"
    assert "of another version of koalapy" in ended.error["message"]
    assert "tried again with this version" in ended.error["message"]
    today.request(Cancel, TAG)
    today.gone(TAG)
    assert not (today.shared / far.INSTANCE / TAG / "work" / "began").exists()


def release(koalad: Any) -> None:
    address = koalad.report(TAG, "at_barrier").nodes[0][1]
    koalad.request(Release, TAG, 0, [[0, address, 1]])
