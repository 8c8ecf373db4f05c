"""A faulty head node: commands that are missing or hang, another locale than ours."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from koalapy_adapters.batch.protocol import RUNNING
from koalapy_adapters.contract.live import Live, refusal
from koalapy_adapters.contract.target import QUEUE
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, TransientError
from koalapy_adapters.kcm.execution.batch_system import SubmitDoubt

_ALIVE = "sed -n 's/^State:\\t[^ZX]/&/p' /proc/$p/status 2>/dev/null"  # but for what nobody has buried yet
_OFTEN = re.compile(r"[a-z]\w+")  # what may be the name of a command
_NEVER_COMMANDS = frozenset({"sh", "env", "python3", "true", "cat", "sleep"})


def test_without_its_commands_the_cluster_is_at_fault(live: Live) -> None:
    batch_id = live.submit(live.job("true"))
    by_library = not live.batch.ran
    looked_up(live)
    with live.batch.environment(PATH="/nonexistent"):
        for call in every_call(live, batch_id, by_library):
            with pytest.raises(ClusterError) as raised:
                call()
            assert raised.value.code == "command_missing"


def test_a_command_that_hangs_is_ended_with_all_that_it_started(live: Live) -> None:
    batch_id = live.submit(live.job("true"))
    by_library = not live.batch.ran
    looked_up(live)
    directory = f"{live.batch.cluster.directory}/{live.tag()}-hang"
    hanging = f"#!/bin/sh\nsleep 600 &\necho $! >>{directory}/pids\nwait\n"
    for name in commands(live, batch_id):
        live.batch.write(f"{directory}/{name}", hanging, 0o755)
    path = live.batch.output("sh", "-c", 'echo "$PATH"').strip()
    live.batch.begin(timeout=0.5)
    try:
        with live.batch.environment(PATH=f"{directory}:{path}"):
            for call in every_call(live, batch_id, by_library):
                with pytest.raises((TransientError, SubmitDoubt)) as raised:
                    call()
                assert code(raised.value) == "command_timeout"
        alive = f"for p in $(cat {directory}/pids); do {_ALIVE}; done; :"
        live.until(lambda: live.batch.output("sh", "-c", alive) == "")  # what is killed takes a moment to die
    finally:
        live.batch.begin()
        live.batch.run("rm", "-rf", directory)


@pytest.mark.parametrize("locale", ["tr_TR.UTF-8", "de_DE@euro"])
def test_the_users_locale_changes_nothing(live: Live, locale: str) -> None:
    """Variables by which users change the output of the commands change nothing either."""
    variables = dict.fromkeys(("LC_ALL", "LANG", "LANGUAGE", "LC_NUMERIC", "LC_TIME"), locale)
    formats = {"SQUEUE_FORMAT": "%i", "SINFO_FORMAT": "%n", "SLURM_TIME_FORMAT": "relative", "SQUEUE_SORT": "j"}
    with live.load() as batch_id, live.batch.environment(**variables, **formats):
        assert live.batch.describe().version
        assert live.batch.check(batch_id)[batch_id].state == RUNNING
        assert batch_id in live.batch.capacity().statuses
        refused = refusal(lambda: live.submit(live.job("true", queue="no-such-queue")))
        assert QUEUE not in live.target.refuses or isinstance(refused, RequestError)


# ---- below -----------------------------------------------------------------------------------------------------------


def every_call(live: Live, batch_id: str, by_library: bool = False) -> list[Callable[[], Any]]:
    """The calls of a batch system that run its commands.

    `by_library`: a library such as DRMAA's submits and cancels without commands.
    """
    batch, job = live.batch, live.job("true")
    return [
        batch.describe,
        batch.capacity,
        lambda: batch.look(job.tag),
        lambda: batch.check(batch_id),
        *([] if by_library else [lambda: batch.cancel(batch_id), lambda: batch.submit(job)]),
    ]


def code(error: Exception) -> str:
    """Code of a refusal, or of a submit in doubt."""
    known = error.error if isinstance(error, SubmitDoubt) else error
    assert isinstance(known, BatchError)
    return known.code


def looked_up(live: Live) -> None:
    """Skip the test if the batch system's commands are not looked up on the PATH."""
    live.batch.capacity()
    if live.batch.ran[0].argv[0].startswith("/"):
        pytest.skip("its commands are not looked up on the PATH")


def commands(live: Live, batch_id: str) -> list[str]:
    """Names of the batch system's commands, as the dialect's argument lists have them."""
    words: set[str] = set()
    for call in every_call(live, batch_id):
        call()
        words |= {word for result in live.batch.ran for text in result.argv for word in _OFTEN.findall(text)}
    asked = sorted(words - _NEVER_COMMANDS)
    found = live.batch.run("sh", "-c", 'for n in "$@"; do command -v "$n"; done; :', "sh", *asked).stdout.split()
    return sorted(path.rpartition("/")[2] for path in found if path.startswith("/"))
