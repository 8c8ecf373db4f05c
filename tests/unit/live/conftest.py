"""A real koalad over three embedded clusters in a directory of its own, and `koala` as a real process."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest

Document = dict[str, Any]


@pytest.fixture(scope="session")
def shell() -> Callable[..., Document]:
    """A component that runs a line of sh."""
    return live.sh


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: a Unix socket lies in it."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as root:
        yield Path(root)


@pytest.fixture
def fresh(place: Path) -> Iterator[Any]:
    """A grid whose koalad does not run yet."""
    koala = live.Koala(place)
    yield koala
    koala.stop()


@pytest.fixture
def small(place: Path) -> Iterator[Any]:
    """A grid of one cluster whose koalad does not run yet."""
    koala = live.Koala(place, live.embedded(place, "delft"))
    yield koala
    koala.stop()


@pytest.fixture(scope="module")
def koala() -> Iterator[Any]:
    """A grid whose koalad runs for all tests of a module."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as root:
        made = live.Koala(Path(root), queue_after="2s")
        answer = made("up")
        assert answer.status == 0, answer
        yield made
        made.stop()
