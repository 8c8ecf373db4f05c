"""KOALA_RENDEZVOUS as programs call it, within a component and between components, with and without a relay."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Await = Callable[..., Any]

R = "$KOALA_RENDEZVOUS"


def test_rank_0_publishes_a_value_to_the_others(world: Any) -> None:
    program = f'if [ $KOALA_RANK = 0 ]; then {R} put port "4711 of me"; fi; {R} get port'
    relay, attempt = world.relay(), world.attempt(program, processors=4)
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0
    assert [attempt.output(rank) for rank in range(4)] == ["4711 of me\n"] * 4


def test_two_components_exchange_values_through_the_relay(world: Any) -> None:
    relay = world.relay()
    program = (
        f"{R} put from.$KOALA_COMPONENT.$KOALA_RANK hello.$KOALA_RANK\n"
        f"for key in 0.0 0.1 1.2 1.3; do {R} get from.$key; done; {R} barrier all 4; echo through"
    )
    attempts = [world.attempt(program, number=str(n), component=n, components=2) for n in (0, 1)]
    relay.connect_keys(*attempts)
    hosts = [[0, "a", 2], [1, "b", 2]]
    for attempt in attempts:
        attempt.start()
    for component, attempt in enumerate(attempts):
        relay.release(attempt, first_rank=2 * component, hosts=hosts)
    assert [attempt.wait() for attempt in attempts] == [0, 0]
    expected = "hello.0\nhello.1\nhello.2\nhello.3\nthrough\n"
    assert [attempts[rank // 2].output(rank) for rank in range(4)] == [expected] * 4


def test_a_barrier_can_be_used_again_and_again(world: Any) -> None:
    """A process that passed round N sees the mark that each other process made before it."""
    program = (
        "for round in 1 2 3 4; do touch mark.$round.$KOALA_RANK\n"
        f"{R} barrier loop 3 || exit 1\n"
        "[ $(ls mark.$round.* | wc -l) = 3 ] || exit 2; done"
    )
    relay, attempt = world.relay(), world.attempt(program, processors=3)
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0


def test_a_rendezvous_within_a_component_needs_no_relay(world: Any) -> None:
    relay = world.relay()
    attempt = world.attempt(f"while [ ! -e go ]; do sleep 0.01; done; {R} barrier b 2 && {R} put k.$KOALA_RANK 1")
    attempt.start()
    relay.release(attempt)
    relay.report(attempt, "running")
    relay.close()
    attempt.stage("go", "")
    assert attempt.wait() == 0


def test_the_first_value_of_a_key_stays(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt(f"{R} put k 1; {R} put k 2; {R} get k", processors=1)
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0
    assert attempt.output(0) == "1\n"
    relay.report(attempt, "ended")
    assert relay.keys(attempt) == [("k", "1")]


def test_a_value_of_the_greatest_size_is_passed_on(world: Any) -> None:
    program = f'value=$(head -c 65536 /dev/zero | tr "\\0" "\\001"); {R} put k "$value"; {R} get k | cksum'
    relay, attempt = world.relay(), world.attempt(program, processors=1)
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0
    expected = subprocess.run(["cksum"], input=b"\1" * 65536 + b"\n", capture_output=True, check=True).stdout.decode()
    assert attempt.output(0) == expected


def test_a_process_that_waits_in_vain_ends_with_its_component(world: Any, await_that: Await) -> None:
    relay, attempt = world.relay(), world.attempt(f"echo >waits; {R} get never", processors=1)
    attempt.start()
    relay.release(attempt)
    await_that((attempt.path / "work/waits").exists)
    relay.stop(attempt)
    attempt.wait()
    assert attempt.record()["ending"] == "cancelled"


def test_a_rendezvous_leaves_no_file_on_the_node(world: Any) -> None:
    program = 'dirname "$KOALA_SOCKET"; stat -c %a "$(dirname "$KOALA_SOCKET")"'
    relay, attempt = world.relay(), world.attempt(program, processors=1)
    attempt.start()
    relay.release(attempt)
    attempt.wait()
    directory, mode = attempt.output(0).splitlines()
    assert mode == "700"
    assert not Path(directory).exists()
    assert (attempt.path / "rendezvous").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage"),
        (["put", "key"], "usage"),
        (["shout", "key"], "usage"),
        (["get"], "usage"),
        (["get", ""], "empty"),
        (["put", "", "x"], "empty"),
        (["put", "k" * 1025, "x"], "1025 bytes"),
        (["put", "k", "ä" * 32769], "65538 bytes"),
        (["put", "k", b"\xff"], "UTF-8"),
        (["put", "barrier/x/1", ""], "barrier/"),
        (["barrier", "b", "0"], "number"),
        (["barrier", "b", "many"], "number"),
        (["barrier", "b" * 1024, "1"], "bytes"),
        (["get", "key"], "KOALA_SOCKET is not set"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_arguments_print_the_usage(world: Any, words: list[Any], said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KOALA_SOCKET"}
    called = subprocess.run([*world.command, "rendezvous", *words], env=environment, capture_output=True, check=False)
    assert called.returncode == 2
    assert called.stdout == b""
    assert said in called.stderr.decode()


def test_a_call_without_an_agent_is_an_error(world: Any) -> None:
    environment = {**os.environ, "KOALA_SOCKET": "/nonexistent/socket"}
    called = subprocess.run(
        [*world.command, "rendezvous", "get", "k"], env=environment, capture_output=True, check=False
    )
    assert called.returncode == 1
    assert b"agent does not answer" in called.stderr
