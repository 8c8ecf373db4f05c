"""The wrapper as a real process, from its start lock to its exit record, with a real relay."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.start_lock import StartLock, held_by, take

AN_HOUR_US = 3_600_000_000
PHASES = ["started", "at_barrier", "released", "running", "ended"]
PRINT = 'echo "$KOALA_RANK/$KOALA_SIZE $KOALA_LOCAL_RANK $KOALA_JOB_ID.$KOALA_COMPONENT of $KOALA_COMPONENTS" "$@"'


def test_a_component_passes_all_phases_and_every_process_has_its_place(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt(PRINT, processors=3, arguments=["a b", "$HOME", ""])
    attempt.start()
    relay.release(attempt, first_rank=4, hosts=[[0, "10.0.0.1", 4], [1, "10.0.0.2", 3]])
    ended = relay.report(attempt, "ended")
    assert attempt.wait() == 0
    assert [attempt.output(rank) for rank in (4, 5, 6)] == [f"{4 + i}/7 {i} 7.0 of 1 a b $HOME \n" for i in range(3)]
    assert (ended["ending"], ended["exit_status"]) == ("exited", 0)
    instants = [ended[name] for name in ("at_barrier_at", "released_at", "started_at", "ended_at")]
    assert instants == sorted(instants)
    phases = [report["phase"] for report in relay.reports(attempt)]
    assert phases == sorted(phases, key=PHASES.index)
    assert set(PHASES[1:]) <= set(phases)  # the barrier may be entered before the relay
    assert (attempt.path / "hosts").read_text().splitlines() == ["0 10.0.0.1"] * 4 + ["1 10.0.0.2"] * 3
    record = attempt.record()
    assert {name: record[name] for name in ended} == ended
    assert abs(record["offset"] - AN_HOUR_US) < 60_000_000  # the relay's clock is as far ahead
    assert attempt.words() == ""
    assert sorted(os.listdir(attempt.path / "output")) == [f"{n}.{kind}" for n in (4, 5, 6) for kind in ("err", "out")]


def test_the_wrapper_runs_on_the_oldest_python_too(world: Any, interpreter: list[str], pushed: Path) -> None:
    world.command = [*interpreter, str(pushed)]
    relay, attempt = (
        world.relay(),
        world.attempt("$KOALA_RENDEZVOUS put a 1; $KOALA_RENDEZVOUS get a; exit 3", processors=1),
    )
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 3
    assert attempt.output(0) == "1\n"
    assert attempt.record()["ending"] == "exited"
    assert attempt.words() == ""


def test_the_users_words_reach_the_program_byte_for_byte(world: Any) -> None:
    arguments = ["a\nb", "*", "ü", "'\"\\", "\udcff"]
    relay = world.relay()
    attempt = world.attempt(
        'printf "%s\\0" "$@"; printf "%s" "$WORD"',
        processors=1,
        arguments=arguments,
        environment=[["WORD", "x\ny=\udcfe"]],
    )
    attempt.start(LC_ALL="C")
    relay.release(attempt)
    assert attempt.wait() == 0
    expected = "\0".join([*arguments, "x\ny=\udcfe"]).encode("utf-8", "surrogateescape")
    assert (attempt.path / "output/0.out").read_bytes() == expected


def test_a_void_attempt_ends_at_once_without_output(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("echo ran")
    take(str(attempt.path), StartLock("void", "KCM"))
    attempt.start()
    assert attempt.wait() == 0
    assert attempt.words() == ""
    assert relay.hellos.empty()
    assert not (attempt.path / "record.json").exists()


def test_a_second_start_never_runs_the_program(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("echo ran")
    take(str(attempt.path), StartLock("taken", "the first start"))
    attempt.start()
    ended = relay.report(attempt, "ended")
    assert attempt.wait() != 0
    assert ended["ending"] == "restarted" == attempt.record()["ending"]
    assert ended["error"]["whose"] == "cluster"
    assert os.listdir(attempt.path / "output") == []


def test_a_second_start_keeps_the_exit_record_of_the_first_and_reports_it_again(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0
    record = attempt.record()
    attempt.start()
    assert attempt.wait() != 0
    assert attempt.record() == record
    assert relay.reports(attempt)[-1]["ending"] == "exited"


def test_one_of_two_starts_at_the_same_time_wins(world: Any, await_that: Callable[..., Any]) -> None:
    """The start lock names the winner; the other is a second start."""
    relay = world.relay()
    attempt = world.attempt("exit 0")
    starts = [attempt.start(), attempt.start()]
    claim = await_that(lambda: held_by(str(attempt.path)))
    winner, loser = sorted(starts, key=lambda start: f" {start.pid} " not in claim.by)
    assert f" {winner.pid} " in claim.by
    assert loser.wait(120) == 1
    relay.report(attempt, "at_barrier")
    winner.terminate()
    assert winner.wait(120) == 1


def test_no_secret_is_in_a_command_line_or_in_the_programs_environment(
    world: Any, processes: Callable[[bytes], list[int]]
) -> None:
    secret = "QWERTYsecret"
    relay, attempt = world.relay(), world.attempt("sleep 600", setup=[f"MINE={secret}"], environment=[["PASS", secret]])
    attempt.start()
    relay.release(attempt)
    relay.report(attempt, "running")
    assert (attempt.path / "token").read_text() == attempt.token
    assert processes(attempt.token.encode()) == processes(relay.secret.encode()) == []
    mine = processes(str(attempt.path).encode())
    assert mine
    assert not any(secret in Path(f"/proc/{pid}/cmdline").read_text() for pid in mine)
    relay.stop(attempt, force=True)
    attempt.wait()


def test_the_program_has_the_environment_of_the_login_shell(world: Any) -> None:
    world.home.joinpath(".profile").write_text('echo "a banner"; export FROM_PROFILE=yes; PATH=/opt/mine:$PATH\n')
    relay = world.relay()
    attempt = world.attempt(
        "env", setup=["export FROM_SETUP='it is'", "umask 077"], environment=[["OWN", "1"], ["FROM_PROFILE", "mine"]]
    )
    attempt.start(KCM_PRIVATE="x", SLURM_JOB_ID="5")
    relay.release(attempt)
    assert attempt.wait() == 0
    seen = dict(line.split("=", 1) for line in attempt.output(1).splitlines())
    expected = {"FROM_PROFILE": "mine", "FROM_SETUP": "it is", "OWN": "1", "SLURM_JOB_ID": "5", "KOALA_RANK": "1"}
    assert {name: seen.get(name) for name in expected} == expected
    assert seen["PATH"].startswith("/opt/mine:")
    assert "KCM_PRIVATE" not in seen
    assert seen["PWD"] == str(attempt.path / "work")


def test_a_daemon_that_the_profile_starts_does_not_delay_the_barrier(world: Any) -> None:
    world.home.joinpath(".profile").write_text("sleep 600 &\n")
    relay, attempt = world.relay(), world.attempt("exit 0")
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0


def test_the_heartbeat_is_touched(world: Any, await_that: Callable[..., Any]) -> None:
    attempt = world.attempt("exit 0", orphan_timeout=2.0)
    attempt.start()
    heartbeat = attempt.path / "heartbeat"
    await_that(heartbeat.exists)
    first = heartbeat.stat().st_mtime_ns
    await_that(lambda: heartbeat.stat().st_mtime_ns > first)


def test_a_component_file_that_comes_late_is_waited_for(world: Any, await_that: Callable[..., Any]) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0")
    hidden = (attempt.path / "component.json").rename(attempt.path / "hidden")
    attempt.start()
    await_that(lambda: attempt.wrapper.pid and Path(f"/proc/{attempt.wrapper.pid}/wchan").exists())
    hidden.rename(attempt.path / "component.json")
    relay.release(attempt)
    assert attempt.wait() == 0


@pytest.mark.parametrize("argv", [[], ["a", "b"]])
def test_wrong_arguments_print_the_usage(world: Any, argv: list[str]) -> None:
    called = subprocess.run([*world.command, "wrapper", *argv], capture_output=True, text=True, check=False)
    assert called.returncode == 2
    assert "usage" in called.stderr


def test_the_exit_record_is_a_wrapper_report(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 5", processors=1)
    attempt.start(KOALA_ALLOCATION_JOB="3@/queue")
    relay.release(attempt)
    attempt.wait()
    record = json.loads((attempt.path / "record.json").read_text())
    assert record["batch_id"] == "3@/queue"
    assert (record["phase"], record["exit_status"], record["tag"]) == ("ended", 5, attempt.tag)
    assert record["clock"] >= record["ended_at"]


def test_the_exit_record_of_a_failure_has_its_first_rank_host_signal_and_last_output(world: Any) -> None:
    script = 'test "$KOALA_RANK" = 1 || exec sleep 600\nfor i in 1 2 3 4 5 6 7; do echo "line $i" >&2; done\n'
    attempt = world.attempt(script + "kill -SEGV $$")
    relay = world.relay()
    attempt.start()
    relay.release(attempt)
    attempt.wait()
    error = attempt.record()["error"]
    assert (error["code"], error["command"]) == ("process_failed", "Rank 1 on here")
    assert error["message"] == "exit status 139 (signal 11, SEGV), rank 1 on here."
    assert error["words"] == "line 3\nline 4\nline 5\nline 6\nline 7"


def test_the_last_output_of_a_failure_is_a_kibibyte_at_most(world: Any) -> None:
    attempt = world.attempt("printf '%5000s' x >&2; exit 3", processors=1)
    relay = world.relay()
    attempt.start()
    relay.release(attempt)
    attempt.wait()
    error = attempt.record()["error"]
    assert error["message"] == "exit status 3, rank 0 on here."
    assert error["words"].strip() == "x"
    assert len(error["words"]) <= 1024
