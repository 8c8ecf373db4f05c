"""Ends of components: by themselves, signals, limits or a stop. None of their processes survives."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.wrapper.failure_texts import cannot_start
from koalapy_adapters.wrapper.program.executable import NoExecutable, locate

Processes = Callable[[bytes], list[int]]
Await = Callable[..., Any]

IGNORES = "trap '' TERM\n"
FOREVER = "while :; do sleep 600; done\n"
# A grandchild in a session of its own, whose parents are gone: nothing but a subreaper finds it again.
ESCAPES = "(setsid sh -c 'echo $$ >>escaped; exec sleep 600' </dev/null >/dev/null 2>&1 &)\n"
ESCAPED = "while [ ! -s escaped ]; do sleep 0.01; done\n"


def run(world: Any, program: str | None, **wishes: Any) -> tuple[dict[str, Any], Any]:
    """Run the program, released at once. Returns its exit record and the attempt."""
    relay, attempt = world.relay(), world.attempt(program, **wishes)
    attempt.start()
    relay.release(attempt)
    attempt.wait()
    return attempt.record(), attempt


def fail(world: Any, program: str | None, **wishes: Any) -> dict[str, Any]:
    """Run an attempt that fails before its barrier. Returns the error in both its exit record and its last report."""
    relay, attempt = world.relay(), world.attempt(program, **wishes)
    attempt.start()
    ended = dict(relay.report(attempt, "ended"))
    assert attempt.wait() == 1
    assert ended["ending"] == "failed"
    assert attempt.record()["error"] == ended["error"]
    assert all(report["phase"] != "at_barrier" for report in relay.reports(attempt))
    return ended


def at_work(relay: Any, attempt: Any, await_that: Await) -> None:
    """Wait until every process has written its pid."""
    attempt.start()
    relay.release(attempt)
    count = relay.report(attempt, "at_barrier")["nodes"][0][2]
    await_that(lambda: len(list(attempt.path.glob("work/pid.*"))) == count)


WRITES_PID = "echo $$ >pid.$KOALA_RANK\n"


def test_the_first_non_zero_status_is_the_components_status_and_ends_the_others(
    world: Any, processes: Processes
) -> None:
    record, attempt = run(world, f"[ $KOALA_RANK = 1 ] && exit 7\n{FOREVER}", processors=4)
    assert (record["ending"], record["exit_status"], record["error"]["command"]) == ("exited", 7, "Rank 1 on here")
    assert attempt.wrapper.returncode == 7
    assert processes(str(attempt.path).encode()) == []


def test_processes_that_end_well_do_not_end_the_others(world: Any) -> None:
    record, attempt = run(world, "[ $KOALA_RANK = 0 ] && exit 0\nsleep 0.2; echo done", processors=2)
    assert (record["ending"], record["exit_status"]) == ("exited", 0)
    assert attempt.output(1) == "done\n"


def test_a_signal_from_outside_is_not_an_exit_of_the_program(world: Any) -> None:
    record, _ = run(world, "kill -9 $$", processors=1)
    assert (record["ending"], record["exit_status"]) == ("killed", 137)


def test_a_crash_is_an_exit_of_the_program(world: Any) -> None:
    record, _ = run(world, "ulimit -c 0; kill -SEGV $$", processors=1)
    assert (record["ending"], record["exit_status"]) == ("exited", 139)


def test_processes_that_the_program_forked_do_not_survive_it(world: Any, processes: Processes) -> None:
    record, attempt = run(world, ESCAPES + ESCAPED, processors=1)
    assert (record["ending"], record["exit_status"]) == ("exited", 0)
    escaped = int((attempt.path / "work/escaped").read_text())
    assert not Path(f"/proc/{escaped}").exists()
    assert processes(str(attempt.path).encode()) == []


def test_an_attempt_that_is_not_released_leaves_its_barrier_by_itself(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("echo ran", barrier_timeout=0.3)
    attempt.start()
    ended = relay.report(attempt, "ended")
    assert attempt.wait() == 1
    assert (ended["ending"], ended["error"]["whose"]) == ("left_barrier", "transient")
    assert ended["ended_at"] - ended["at_barrier_at"] >= 300_000
    assert os.listdir(attempt.path / "output") == []


def test_a_walltime_counts_from_the_release_and_is_enforced(world: Any, processes: Processes) -> None:
    for number, walltime in enumerate((0.5, 5.0, 50.0), 1):  # whichever it begins to ignore signals within
        record, attempt = run(
            world, f"{IGNORES}: >deaf\n{ESCAPES}{FOREVER}", number=str(number), walltime=walltime, grace=0.2
        )
        if (attempt.path / "work/deaf").exists():
            break
    assert (record["ending"], record["exit_status"]) == ("walltime", 137)
    assert record["error"]["whose"] == "request"
    assert record["ended_at"] - record["released_at"] >= 700_000
    assert processes(str(attempt.path).encode()) == []


def test_a_stopped_program_has_its_grace(world: Any, await_that: Await) -> None:
    relay = world.relay()
    attempt = world.attempt(f"trap 'echo bye; exit 0' TERM\n{WRITES_PID}sleep 600 & wait", processors=2, grace=60.0)
    at_work(relay, attempt, await_that)
    relay.stop(attempt)
    assert attempt.wait() == 1
    assert [attempt.output(rank) for rank in (0, 1)] == ["bye\n", "bye\n"]
    assert (attempt.record()["ending"], attempt.record()["exit_status"]) == ("cancelled", 0)


def test_a_program_is_killed_after_its_grace(world: Any, await_that: Await, processes: Processes) -> None:
    relay, attempt = world.relay(), world.attempt(IGNORES + WRITES_PID + ESCAPES + FOREVER, grace=0.2)
    at_work(relay, attempt, await_that)
    relay.stop(attempt)
    attempt.wait()
    assert (attempt.record()["ending"], attempt.record()["exit_status"]) == ("cancelled", 137)
    assert processes(str(attempt.path).encode()) == []


def test_a_forced_stop_does_not_wait_for_the_grace(world: Any, await_that: Await) -> None:
    relay, attempt = world.relay(), world.attempt(IGNORES + WRITES_PID + FOREVER, grace=3600.0)
    at_work(relay, attempt, await_that)
    relay.stop(attempt)
    relay.stop(attempt, force=True)
    attempt.wait()
    assert attempt.record()["ending"] == "cancelled"


def test_a_stop_before_the_barrier_ends_it_there(world: Any, await_that: Await) -> None:
    relay, attempt = world.relay(), world.attempt("echo ran", setup=["echo >waits", "sleep 600"])
    attempt.start()
    await_that((attempt.path / "work/waits").exists)
    relay.stop(attempt)
    ended = relay.report(attempt, "ended")
    attempt.wait()
    assert (ended["ending"], ended["exit_status"], ended["started_at"]) == ("cancelled", None, None)


def test_the_batch_systems_sigterm_stops_the_program_too(world: Any, await_that: Await) -> None:
    program = f"trap 'echo bye; exit 0' TERM\n{WRITES_PID}sleep 600 & wait"
    relay, attempt = world.relay(), world.attempt(program, grace=60.0)
    at_work(relay, attempt, await_that)
    attempt.wrapper.terminate()
    attempt.wait()
    assert attempt.output(0) == "bye\n"
    assert (attempt.record()["ending"], attempt.record()["error"]["code"]) == ("killed", "signalled")


def test_the_batch_systems_sigterm_may_reach_the_programs_child_before_the_wrapper(
    world: Any, await_that: Await
) -> None:
    """The shell then exits with 143 by itself, without a signal of its own."""
    program = f"{WRITES_PID}sleep 600 & echo $! >started; mv started child; wait $!"
    relay, attempt = world.relay(), world.attempt(program, grace=60.0)
    at_work(relay, attempt, await_that)
    child = attempt.path / "work/child"
    await_that(child.exists)
    shell = int((attempt.path / "work/pid.0").read_text())
    os.kill(int(child.read_text()), signal.SIGTERM)
    await_that(lambda: not Path(f"/proc/{shell}").exists())
    attempt.wrapper.terminate()
    attempt.wait()
    record = attempt.record()
    assert (record["ending"], record["error"]["code"], record["exit_status"]) == ("killed", "signalled", 143)


def test_a_sigterm_to_the_agent_alone_stops_the_program_too(world: Any, await_that: Await) -> None:
    relay, attempt = world.relay(), world.attempt(WRITES_PID + FOREVER)
    at_work(relay, attempt, await_that)
    os.kill(attempt.children()[0], signal.SIGTERM)
    attempt.wait()
    assert (attempt.record()["ending"], attempt.record()["error"]["code"]) == ("killed", "signalled")


@pytest.mark.parametrize(
    ("executable", "mode", "text", "words"),
    [
        ("./absent", 0o700, "", "does not exist"),
        ("no-such-command", 0o700, "", "not on the PATH"),
        ("./there", 0o600, "#!/bin/sh\n", "may not be executed"),
        ("./there", 0o700, "#!/no/such/python\n", "/no/such/python"),
        (".//", 0o700, "", "is not a file"),
    ],
)
def test_an_executable_that_cannot_run_fails_before_the_barrier(
    world: Any, executable: str, mode: int, text: str, words: str
) -> None:
    relay, attempt = world.relay(), world.attempt(executable=executable)
    attempt.stage("there", text, mode)
    attempt.start()
    ended = relay.report(attempt, "ended")
    assert attempt.wait() == 1
    assert (ended["ending"], ended["at_barrier_at"]) == ("failed", None)
    assert (ended["error"]["code"], ended["error"]["whose"]) == ("no_executable", "request")
    assert words in ended["error"]["message"]
    assert ended["error"]["advice"]


@pytest.mark.parametrize("path", ["/no/such/program", "/"])
def test_the_advice_for_an_absolute_path_is_not_to_make_it_absolute(path: str) -> None:
    with pytest.raises(NoExecutable) as found:
        locate(path, "/tmp", {})
    assert "Correct the path" in found.value.error["advice"]
    assert "name it by an absolute path" not in found.value.error["advice"]


@pytest.mark.parametrize("why", ["[Errno 25] An isolated program can have no terminal.", "No space left on device"])
@pytest.mark.parametrize("what", ["prepare", "execute"])
def test_the_reason_of_a_node_ends_with_one_full_stop(what: str, why: str) -> None:
    message = cannot_start("c1", what, "./a.out", why)["message"]
    assert message.endswith(f": {why.rstrip('.')}.")


def test_an_executable_without_a_slash_is_looked_up_on_the_captured_path(world: Any) -> None:
    relay = world.relay()
    attempt = world.attempt("echo found", executable="program", setup=["PATH=$PWD:$PATH"], processors=1)
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0
    assert attempt.output(0) == "found\n"


def test_an_executable_that_the_kernel_refuses_fails_with_its_error(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt(executable="./there")
    attempt.stage("there", "neither a script nor a binary\n")
    attempt.start()
    relay.release(attempt)
    attempt.wait()
    record = attempt.record()
    assert (record["ending"], record["error"]["code"]) == ("failed", "no_executable")
    assert "Exec format error" in record["error"]["message"]


def test_a_failing_setup_line_fails_the_attempt_with_its_output(world: Any) -> None:
    ended = fail(world, "echo ran", setup=["module load gcc/99", "echo not reached"])
    assert (ended["error"]["code"], ended["error"]["whose"]) == ("setup_failed", "request")
    assert "module" in ended["error"]["words"]
    assert "/setup" not in ended["error"]["words"]  # its file is gone, and its name differs from node to node
    assert "not reached" not in ended["error"]["words"]


def test_a_setup_line_that_ends_the_shell_fails_the_attempt(world: Any) -> None:
    assert fail(world, "echo ran", setup=["exit 0"])["error"]["code"] == "setup_failed"


def test_an_attempt_on_too_small_an_allocation_fails(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("echo ran", processors=4)
    attempt.start(KOALA_ALLOCATION_HOSTS="here:3")
    ended = relay.report(attempt, "ended")
    attempt.wait()
    assert (ended["ending"], ended["error"]["code"]) == ("failed", "allocation_too_small")


def test_an_attempt_of_a_batch_system_without_a_dialect_fails(world: Any) -> None:
    assert fail(world, "echo ran", batch="elsewhere")["error"]["code"] == "no_dialect"


def test_no_process_survives_a_killed_agent(world: Any, await_that: Await, processes: Processes) -> None:
    relay, attempt = world.relay(), world.attempt(IGNORES + ESCAPES + WRITES_PID + FOREVER)
    at_work(relay, attempt, await_that)
    os.kill(attempt.children()[0], signal.SIGKILL)
    attempt.wait()
    assert (attempt.record()["ending"], attempt.record()["error"]["code"]) == ("killed", "agent_lost")
    assert processes(str(attempt.path).encode()) == []


def test_no_process_survives_a_killed_wrapper(world: Any, await_that: Await, processes: Processes) -> None:
    relay, attempt = world.relay(), world.attempt(IGNORES + ESCAPES + WRITES_PID + FOREVER, grace=0.2)
    at_work(relay, attempt, await_that)
    attempt.wrapper.kill()
    attempt.wait()
    await_that(lambda: processes(str(attempt.path).encode()) == [])
    assert not (attempt.path / "record.json").exists()


def test_an_orphan_ends_its_program_and_leaves(world: Any, await_that: Await, processes: Processes) -> None:
    """It reaches neither a relay nor the shared directory, which was moved away."""
    relay, attempt = world.relay(), world.attempt(WRITES_PID + FOREVER, orphan_timeout=1.0)
    at_work(relay, attempt, await_that)
    moved = attempt.path.rename(attempt.path.with_name("moved"))
    relay.close()
    await_that(lambda: not processes(f"KOALA_HOSTS={attempt.path}".encode()))
    moved.rename(attempt.path)
    assert attempt.wait() == 1
    assert (attempt.record()["ending"], attempt.record()["error"]["code"]) == ("killed", "orphaned")


def test_an_attempt_without_its_relay_only_is_no_orphan(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("sleep 6; echo done", orphan_timeout=4.0, processors=1)
    attempt.start()
    relay.release(attempt)
    relay.report(attempt, "running")
    relay.close()
    assert attempt.wait() == 0
    assert attempt.output(0) == "done\n"


def test_an_end_is_reported_though_its_exit_record_cannot_be_written_and_is_tried_again(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 4", processors=1)
    obstacle = attempt.path / "record.json"
    obstacle.mkdir()
    (obstacle / "full").touch()
    attempt.start()
    relay.release(attempt)
    assert relay.report(attempt, "ended")["exit_status"] == 4
    (obstacle / "full").unlink()
    obstacle.rmdir()
    assert attempt.wait() == 4
    assert attempt.record()["exit_status"] == 4
