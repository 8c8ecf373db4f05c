"""Attempts of several nodes, whose agents reach the wrapper through the input and output of what starts them."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Processes = Callable[[bytes], list[int]]
Await = Callable[..., Any]

HOSTS = "one:2 two:2 three:1"
WHERE = "echo $KOALA_RANK $KOALA_LOCAL_RANK $SLURMD_NODENAME"


def start(world: Any, program: str, **wishes: Any) -> tuple[Any, Any]:
    relay, attempt = world.relay(), world.attempt(program, batch="nodes", **{"hosts": HOSTS, "processors": 5, **wishes})
    attempt.start(SLURMD_NODENAME="one")
    return relay, attempt


def at_work(program: str) -> str:
    return f"echo $$ >pid.$SLURMD_NODENAME.$KOALA_RANK; {program}"


def written(attempt: Any) -> int:
    """Return the number of processes that have written their pid."""
    return sum(path.stat().st_size > 0 for path in attempt.path.glob("work/pid.*"))


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({}, ["0 0 one", "1 1 one", "2 0 two", "3 1 two", "4 0 three"]),
        ({"launch": "per-node"}, ["0 0 one", "1 0 two", "2 0 three"]),
        ({"launch": "once"}, ["0 0 one"]),
        ({"threads": 2}, ["0 0 one", "1 0 two"]),
        ({"processors": 3}, ["0 0 one", "1 1 one", "2 0 two"]),
    ],
    ids=["per-processor", "per-node", "once", "threads", "fewer"],
)
def test_processes_are_divided_over_the_nodes(world: Any, wishes: dict[str, Any], expected: list[str]) -> None:
    relay, attempt = start(world, WHERE, **wishes)
    nodes = relay.report(attempt, "at_barrier")["nodes"]
    assert [name for name, _, _ in nodes] == ["one", "two", "three"]
    assert [count for _, _, count in nodes] == [sum(line.endswith(f" {n}") for line in expected) for n, _, _ in nodes]
    relay.release(attempt)
    assert attempt.wait() == 0
    assert [attempt.output(rank).strip() for rank in range(len(expected))] == expected
    assert attempt.words() == ""


def test_agents_run_on_the_oldest_python_too(world: Any, interpreter: list[str], pushed: Path) -> None:
    world.command = [*interpreter, str(pushed)]
    relay, attempt = start(world, f"{WHERE}; $KOALA_RENDEZVOUS barrier b 5")
    relay.release(attempt)
    assert attempt.wait() == 0
    assert attempt.output(4) == "4 0 three\n"
    assert attempt.words() == ""


def test_the_wrappers_own_node_comes_first(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt(WHERE, batch="nodes", hosts=HOSTS, processors=5)
    attempt.start(SLURMD_NODENAME="two")
    relay.release(attempt)
    assert attempt.wait() == 0
    assert [attempt.output(rank).split()[2] for rank in range(5)] == ["two", "two", "one", "one", "three"]


def test_the_first_non_zero_status_ends_all_nodes(world: Any, processes: Processes) -> None:
    _, attempt = start(world, "[ $SLURMD_NODENAME = three ] && exit 9; sleep 600")
    world.relay().release(attempt)
    assert attempt.wait() == 9
    assert processes(str(attempt.path).encode()) == []


def test_no_process_survives_a_killed_agent_on_another_node(
    world: Any, await_that: Await, processes: Processes
) -> None:
    escapes = "(setsid sh -c 'trap \"\" TERM; echo $$ >>escaped; exec sleep 600' </dev/null >/dev/null 2>&1 &)\n"
    relay, attempt = start(world, escapes + at_work("sleep 600"))
    relay.release(attempt)
    await_that(lambda: written(attempt) == 5)
    program = int((attempt.path / "work/pid.two.2").read_text())
    agent = _parent(program)
    os.kill(agent, signal.SIGKILL)
    attempt.wait()
    assert (attempt.record()["ending"], attempt.record()["error"]["code"]) == ("killed", "agent_lost")
    assert "two" in attempt.record()["error"]["message"]
    await_that(lambda: processes(str(attempt.path).encode()) == [])


def test_when_a_guard_is_killed_its_agent_stops_the_program(
    world: Any, await_that: Await, processes: Processes
) -> None:
    relay, attempt = start(world, at_work("sleep 600"))
    relay.release(attempt)
    await_that(lambda: written(attempt) == 5)
    guard = _parent(_parent(int((attempt.path / "work/pid.three.4").read_text())))
    os.kill(guard, signal.SIGKILL)
    attempt.wait()
    assert attempt.record()["ending"] == "killed"
    await_that(lambda: processes(str(attempt.path).encode()) == [])


def test_no_process_survives_a_killed_wrapper_on_any_node(world: Any, await_that: Await, processes: Processes) -> None:
    relay, attempt = start(world, at_work("trap '' TERM; sleep 600; sleep 600"), grace=0.2)
    relay.release(attempt)
    await_that(lambda: written(attempt) == 5)
    attempt.wrapper.kill()
    attempt.wait()
    await_that(lambda: processes(str(attempt.path).encode()) == [])


def test_an_unreachable_agent_ends_its_program_by_itself(world: Any, await_that: Await, processes: Processes) -> None:
    """Its connection to the wrapper is open, but nothing arrives, as over a broken network."""
    relay, attempt = start(world, at_work("exec sleep 600"), orphan_timeout=3.0)
    relay.release(attempt)
    await_that(lambda: written(attempt) == 5)
    far = int((attempt.path / "work/pid.three.4").read_text())
    launcher = _parent(_parent(_parent(far)))
    (line,) = (pid for pid in _children(launcher) if _name(pid) == "tee")
    os.kill(line, signal.SIGSTOP)
    await_that(lambda: not Path(f"/proc/{far}").exists())
    attempt.wait()
    assert attempt.record()["ending"] == "killed"
    await_that(lambda: processes(str(attempt.path).encode()) == [])


def test_a_job_that_was_suspended_for_longer_than_any_time_out_continues(world: Any, await_that: Await) -> None:
    relay, attempt = start(world, at_work("until [ -e go ]; do sleep 0.1; done"), orphan_timeout=3.0)
    relay.release(attempt)
    await_that(lambda: written(attempt) == 5)
    relay.close()  # its KCM has ended, too, and does not come back
    beat, before = attempt.path / "heartbeat", time.time()
    await_that(lambda: beat.stat().st_mtime > before)  # by then it has seen that
    os.killpg(attempt.wrapper.pid, signal.SIGSTOP)
    time.sleep(5)  # nothing shows that it is long enough
    os.killpg(attempt.wrapper.pid, signal.SIGCONT)
    attempt.stage("go", "")
    attempt.wait()
    assert (attempt.record()["ending"], attempt.record()["exit_status"]) == ("exited", 0), attempt.record()


def test_a_failed_start_of_an_agent_is_reported_with_the_nodes_name(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0", batch="nodes", hosts="one:1 two:1", processors=2)
    attempt.start(SLURMD_NODENAME="one", SLURM_TEST_LAUNCHER="echo no such node >&2; exit 3")
    ended = relay.report(attempt, "ended")
    attempt.wait()
    assert (ended["ending"], ended["error"]["code"]) == ("failed", "agent_not_started")
    assert "two" in ended["error"]["message"]
    assert attempt.words() == "no such node\n"


def test_an_error_of_the_dialect_is_reported(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0", batch="nodes", hosts="one:1 two:many", processors=2)
    attempt.start()
    ended = relay.report(attempt, "ended")
    attempt.wait()
    assert (ended["ending"], ended["error"]["code"]) == ("failed", "dialect_failed")
    assert "many" in ended["error"]["message"]


def test_long_values_of_keys_arrive_complete_on_other_nodes(world: Any) -> None:
    """The value is longer than the lines that `srun` and its like pass on undivided."""
    program = (
        'value=$SLURMD_NODENAME$(head -c 60000 /dev/zero | tr "\\0" "\\001")\n'
        '$KOALA_RENDEZVOUS put from.$SLURMD_NODENAME "$value"\n'
        "for node in one two three; do $KOALA_RENDEZVOUS get from.$node | cksum; done; $KOALA_RENDEZVOUS barrier b 3"
    )
    relay, attempt = start(world, program, launch="per-node")
    relay.release(attempt)
    assert attempt.wait() == 0
    assert attempt.output(0) == attempt.output(1) == attempt.output(2)
    assert len(set(attempt.output(0).splitlines())) == 3


def test_every_agent_has_a_private_directory_and_removes_it(world: Any) -> None:
    relay, attempt = start(world, "echo $KOALA_SOCKET", launch="per-node")
    relay.release(attempt)
    assert attempt.wait() == 0
    sockets = {Path(attempt.output(rank).strip()) for rank in range(3)}
    assert len(sockets) == 3
    assert not any(path.parent.exists() for path in sockets)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
