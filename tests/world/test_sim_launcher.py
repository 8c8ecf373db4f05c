"""Launchers of the simulated world: the real machines of Launcher, wrapper and KCM, fed by the tests."""

from collections.abc import Iterable
from unittest.mock import patch

import cluster_play
import pytest
from koalapy_adapters.files import Files
from koalapy_adapters.launcher import journal
from koalapy_adapters.messages import kcm
from koalapy_adapters.messages import koalad as koalad_messages

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import SECOND, Duration
from koalapy.world.behaviour import Behaviour, arguments_of

SWEEP = 5
TAG = str(tag_of(InstanceId("s1m00"), AttemptId(JobId(FIRST_LAUNCHER), 0, 1)))
Koalad = cluster_play.Koalad


class Play(cluster_play.Play):
    """One Launcher of two slots on one node; parameter n runs for n seconds."""

    def launch(self, koalad: Koalad, parameters: int, walltime: float = 600.0) -> None:
        values = [str(number * SECOND) for number in range(1, parameters + 1)]
        source = {"names": ["t"], "loop": None, "without": [], "values": values, "file": "", "column": -1, "lines": 0}
        space = {"axes": [{"sources": [source], "count": parameters}]}
        arguments = ["{t}", *arguments_of(Behaviour())[1:]]
        program = koalad_messages.Program(
            FIRST_LAUNCHER, 0, 1, 1, "./program", arguments, [], [], "per-node", 2, 1, walltime, 30.0, 5.0,
            sweep={"sweep": SWEEP, "space": space, "slots": 2},
        )  # fmt: skip
        batch = {"processors": 2, "processors_per_node": 2, "walltime_s": round(walltime) + 60, "lowest": True}
        koalad.deliver(koalad_messages.Submit(1, TAG, batch, dict(program._asdict()), [], False))
        self.feed(koalad, [[1, parameters]])
        self.release(koalad, TAG)

    def feed(self, koalad: Koalad, ranges: list[list[int]]) -> None:
        koalad.deliver(koalad_messages.FeedSweep(SWEEP, ranges, anew=True, launchers=[TAG]))

    def until_done(self, koalad: Koalad, numbers: Iterable[int]) -> None:
        wanted = set(numbers)
        latest = self.agenda.now + 600 * SECOND
        while not wanted <= set(done(koalad)):
            assert self.agenda.now < latest, done(koalad)
            self.run(1)


def done(koalad: Koalad) -> list[int]:
    return [row[0] for message in koalad.of(kcm.ParametersEnded) for row in message.results]


def returned(koalad: Koalad) -> list[int]:
    ranges = [each for message in koalad.of(kcm.ParametersReturned) for each in message.ranges]
    return sorted(number for first, last in ranges for number in range(first, last + 1))


def finished(play: Play) -> list[int]:
    return sorted(each.number for each in play.program_log.parameters.of(SWEEP) if each.done)


@pytest.mark.parametrize("relay", ["tcp", "files"])
def test_a_launcher_runs_the_parameters_that_it_is_fed(relay: str) -> None:
    play = Play(relay=relay, processors_per_node=2)
    koalad = play.connect()
    play.launch(koalad, 12)
    play.until_done(koalad, range(1, 13))
    assert sorted(done(koalad)) == finished(play) == list(range(1, 13))
    tries = play.program_log.parameters.of(SWEEP)
    assert all(each.ended is not None and each.ended - each.began >= each.number * SECOND for each in tries)


def test_a_stopped_launcher_returns_its_unfinished_parameters() -> None:
    play = Play(processors_per_node=2)
    koalad = play.connect()
    play.launch(koalad, 40)
    play.until_done(koalad, [1, 2, 3])
    koalad.deliver(koalad_messages.Cancel(3, TAG))
    play.until(koalad, kcm.CleanedUp, TAG)
    play.run(60)
    assert sorted(done(koalad) + returned(koalad)) == list(range(1, 41))
    assert set(done(koalad)) == set(finished(play))


def test_a_killed_launcher_loses_no_result() -> None:
    """Results that the Launcher could not report are in its journal."""
    play, koalad = killed_without_relay()
    assert sorted(done(koalad) + returned(koalad)) == list(range(1, 41))
    assert set(done(koalad)) == set(finished(play))


def test_a_kcm_that_ignores_journals_loses_results() -> None:
    with patch.object(journal, "read", lambda *_: []):
        play, koalad = killed_without_relay()
    assert set(finished(play)) > set(done(koalad))


def killed_without_relay() -> tuple[Play, cluster_play.Koalad]:
    """Play a Launcher that ends parameters without a relay, and then loses its node's power."""
    play = Play(processors_per_node=2)
    koalad = play.connect()
    play.launch(koalad, 40)
    play.until_done(koalad, [1, 2, 3])
    [node] = [node for node in play.cluster.batch.nodes if node.bodies]
    play.cluster.cut_relay(Duration(10 * SECOND))
    play.run(8)
    play.cluster.batch.lose(node)
    play.until(koalad, kcm.BatchStatus, TAG, ending="lost")
    play.cancel(koalad, TAG)
    play.run(60)
    return play, koalad


def test_a_new_kcm_learns_the_launcher_s_parameters() -> None:
    play = Play(processors_per_node=2)
    koalad = play.connect()
    play.launch(koalad, 12)
    play.until_done(koalad, [1, 2])
    koalad.leave()
    play.run(3)
    before = set(done(koalad))
    again = play.connect(TAG, batch_id="1")
    play.feed(again, [[number, number] for number in range(1, 13) if number not in before])
    play.until_done(again, set(range(1, 13)) - before)
    numbers = [each.number for each in play.program_log.parameters.of(SWEEP)]
    assert sorted(numbers) == list(range(1, 13))


def test_the_simulated_journal_is_read_by_the_real_code() -> None:
    play = Play(processors_per_node=2)
    koalad = play.connect()
    play.launch(koalad, 4)
    play.until_done(koalad, range(1, 5))
    [path] = [path for path in play.cluster.shared.files if path.endswith(f"{TAG}/journal")]
    rows = journal.read(path.rpartition("/")[0], _Reading(play.cluster.shared.files[path].data))
    assert sorted(row[0] for row in rows) == [1, 2, 3, 4]


class _Reading(Files):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: str) -> bytes:
        return self._data


def test_a_launcher_drains_before_its_walltime() -> None:
    """No parameter starts that cannot end: one of 40 s does not start 30 s before the end."""
    play = Play(processors_per_node=2)
    koalad = play.connect()
    play.launch(koalad, 40, walltime=120.0)
    play.until(koalad, kcm.Report, TAG, phase="ended")
    play.cancel(koalad, TAG)
    play.run(60)
    assert sorted(done(koalad) + returned(koalad)) == list(range(1, 41))
    broken_off = [each for each in play.program_log.parameters.of(SWEEP) if not each.done]
    assert not broken_off


def test_a_parameter_that_is_fed_again_runs_once() -> None:
    play = Play(processors_per_node=2)
    koalad = play.connect()
    play.launch(koalad, 6)
    play.feed(koalad, [[1, 6]])
    play.until_done(koalad, range(1, 7))
    assert len(play.program_log.parameters.of(SWEEP)) == 6
