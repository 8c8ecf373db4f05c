"""The wrapper's pure parts: division, addresses, lines, keys, shells, executables' reasons."""

import json
import os
import selectors
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koalapy_adapters.batch.protocol import Host
from koalapy_adapters.errors import BatchError
from koalapy_adapters.host import json_lines, node_identity
from koalapy_adapters.host.event_loop import EventPump
from koalapy_adapters.host.node_identity import find
from koalapy_adapters.wrapper.keys import key_space
from koalapy_adapters.wrapper.process_layout import divide, offsets, own_first
from koalapy_adapters.wrapper.program.environment import login_shell


def hosts(*processors: int) -> list[Host]:
    return [Host(f"n{index}", count) for index, count in enumerate(processors)]


@pytest.mark.parametrize(
    ("given_", "launch", "processors", "threads", "expected"),
    [
        ((4, 4), "per-processor", 8, 1, [4, 4]),
        ((4, 4), "per-processor", 5, 1, [4, 1]),
        ((4, 4), "per-processor", 8, 2, [2, 2]),
        ((3, 3), "per-processor", 6, 2, [2, 1]),
        ((1, 1, 1), "per-processor", 3, 4, [1, 0, 0]),
        ((4, 2), "per-node", 6, 1, [1, 1]),
        ((4, 2), "once", 6, 1, [1, 0]),
    ],
)
def test_processes_are_divided(
    given_: Sequence[int], launch: str, processors: int, threads: int, expected: list[int]
) -> None:
    assert divide(hosts(*given_), launch, processors, threads) == expected


@given(st.lists(st.integers(1, 16), min_size=1, max_size=8), st.integers(1, 8), st.data())
def test_exactly_as_many_run_as_were_asked_for(given_: list[int], threads: int, data: st.DataObject) -> None:
    processors = data.draw(st.integers(1, sum(given_)))
    counts = divide(hosts(*given_), "per-processor", processors, threads)
    assert sum(counts) == max(1, processors // threads)
    assert offsets(counts)[-1] + counts[-1] == sum(counts)


def test_an_allocation_that_is_too_small_is_refused() -> None:
    with pytest.raises(BatchError, match="gave 7 processors where 8"):
        divide(hosts(4, 3), "per-processor", 8, 1)


@pytest.mark.parametrize(
    ("names", "own", "index"),
    [
        (["a", "b"], ["b"], 1),
        (["a.site", "b.site"], ["b"], 1),
        (["a", "b"], ["b.site.example"], 1),
        (["a", "b"], ["c"], None),
        (["node1", "node10"], ["node10"], 1),
        (["a.x", "a.y"], ["a.y"], 1),
    ],
)
def test_a_node_finds_itself_with_or_without_a_domain(names: list[str], own: list[str], index: int | None) -> None:
    assert find(names, own) == index


def test_the_wrappers_node_comes_first() -> None:
    assert [host.name for host in own_first(hosts(1, 1, 1), "n1")] == ["n1", "n0", "n2"]


@pytest.mark.parametrize(
    ("sources", "connected", "expected"),
    [
        ([["10.0.0.1", "10.0.0.9"], ["192.168.1.1", "192.168.1.9"]], "192.168.1.1", "192.168.1.9"),
        ([["10.0.0.1", "10.0.0.9"], ["192.168.1.1", "192.168.1.9"]], "", "10.0.0.9"),
        ([["127.0.0.1", "127.0.0.1"], ["10.0.0.1", "10.0.0.1"]], "127.0.0.1", "10.0.0.1"),
        ([["127.0.0.1", "127.0.0.1"]], "127.0.0.1", "127.0.0.1"),
        ([["::1", "::1"], ["fd00::1", "fd00::9"]], "::1", "fd00::9"),
        ([], "10.0.0.1", "node7"),
    ],
)
def test_an_address_is_one_that_other_nodes_reach(sources: list[list[str]], connected: str, expected: str) -> None:
    assert node_identity.choose(sources, connected, "node7") == expected


def test_only_the_batch_systems_variables_are_taken_from_the_job() -> None:
    environment = {"SLURM_JOB_ID": "1", "PE_HOSTFILE": "/x", "AWS_SECRET": "s", "PATH": "/bin", "PBS_NODEFILE": "/y"}
    assert set(node_identity.of_batch(environment)) == {"SLURM_JOB_ID", "PE_HOSTFILE", "PBS_NODEFILE"}
    captured = {"SLURM_NODEID": "0", "PATH": "/opt/bin", "SLURM_PROCID": "0"}
    assert node_identity.localized(captured, {"SLURM_NODEID": "1", "PATH": "/bin"}) == {
        "SLURM_NODEID": "1",
        "PATH": "/opt/bin",
    }


messages_ = st.dictionaries(st.text(max_size=5), st.text(max_size=3000), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 3), messages_), max_size=5), st.data())
def test_messages_of_several_agents_arrive_complete_though_their_lines_mix(
    said: list[tuple[int, dict[str, str]]], data: st.DataObject
) -> None:
    queues: dict[int, list[bytes]] = {}
    for node, message in said:
        queues.setdefault(node, []).extend(json_lines.pieces(node, message).splitlines(keepends=True))
    mixed = []
    while any(queues.values()):
        mixed.append(queues[data.draw(st.sampled_from([n for n, queue in queues.items() if queue]))].pop(0))
    assert all(len(line) < 1024 for line in mixed)
    wire, assembler, seen = b"".join(mixed), json_lines.Assembler(), []
    while wire:
        size = data.draw(st.integers(1, 1000))
        seen += assembler.feed(wire[:size])
        wire = wire[size:]
    for node in queues:
        assert [piece.message for piece in seen if piece.node == node] == [m for n, m in said if n == node]
    assert assembler.noise == []


def test_output_between_messages_is_recognized() -> None:
    assembler = json_lines.Assembler()
    seen = assembler.feed(b'Welcome to node7\n@1.{"event":"ready"}\n@2+{"sa\n@2.{broken\n')
    assert seen == [json_lines.Piece(1, {"event": "ready"})]
    assert assembler.noise == [b"Welcome to node7", b'{"sa{broken']


def test_a_writer_drops_messages_that_are_no_longer_read() -> None:
    reading, writing = os.pipe()
    writer = json_lines.Writer(writing, selectors.DefaultSelector())
    os.close(reading)
    writer.write(b"x")
    writer.write(b"y")
    writer.close()
    writer.write(b"z")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3)), max_size=30), st.randoms())
def test_replicas_of_keys_agree_whatever_the_order_of_arrival(puts: list[tuple[str, str]], dice: Any) -> None:
    entries = [(key_space.arrival(name, f"u{index}"), value) for index, (name, value) in enumerate(puts)]
    shuffled = list(entries)
    dice.shuffle(shuffled)
    one, two = key_space.KeySpace(), key_space.KeySpace()
    for key, value in entries:
        assert one.put(key, value)
        assert not one.put(key, "another")
    for key, value in shuffled:
        two.put(key, value)
    for name in "abc":
        assert one.arrivals(name) == two.arrivals(name) == sum(given_ == name for given_, _ in puts)
    assert all(one.get(key) == two.get(key) for key, _ in entries)


@pytest.mark.parametrize(
    ("arrived", "count", "goal"), [(1, 3, 3), (3, 3, 3), (4, 3, 6), (6, 3, 6), (1, 1, 1), (5, 1, 5)]
)
def test_a_round_of_a_barrier_ends_with_a_multiple_of_its_count(arrived: int, count: int, goal: int) -> None:
    assert key_space.goal(arrived, count) == goal


def test_names_of_barriers_may_contain_slashes() -> None:
    assert key_space.barrier_of(key_space.arrival("a/b", "u")) == "a/b"


@pytest.mark.parametrize(
    ("shell", "argv"),
    [
        ("/bin/bash", ["/bin/bash", "-l", "-c", ". /p/setup"]),
        ("/usr/bin/zsh", ["/usr/bin/zsh", "-l", "-c", ". /p/setup"]),
        ("/usr/bin/fish", ["/bin/sh", "-l", "-c", ". /p/setup"]),
        ("/usr/sbin/nologin", ["/bin/sh", "-l", "-c", ". /p/setup"]),
        ("", ["/bin/sh", "-l", "-c", ". /p/setup"]),
    ],
)
def test_a_bourne_shell_sources_the_setup(shell: str, argv: list[str]) -> None:
    made = login_shell(shell, ["module load gcc"], "/p/setup", "/dev/fd/9")
    assert made.argv == argv
    assert made.script == "/bin/rm -f /p/setup\nset -e\nmodule load gcc\nexec /usr/bin/env -0 >| /dev/fd/9\n"


def test_a_c_shell_checks_every_line() -> None:
    made = login_shell("/bin/tcsh", ["module load gcc"], "/p/setup", "/dev/fd/9")
    assert (
        made.script
        == "/bin/rm -f $argv[1]:q\nmodule load gcc\nif ($status) exit 1\nexec /usr/bin/env -0 >! /dev/fd/9\n"
    )


def test_a_message_is_one_line_whatever_its_characters() -> None:
    assert json_lines.line({"a": "x\ny"}).count(b"\n") == 1
    assert (
        json_lines.read(json_lines.line({"a": "\udcff"}))
        == {"a": "\udcff"}
        == json.loads(json_lines.line({"a": "\udcff"}))
    )


class Twice:
    """A machine that returns two commands for a number."""

    def handle(self, now: int, event: int) -> list[int]:
        return [10 * event, 10 * event + 1]


def test_a_failed_command_does_not_stop_the_loop() -> None:
    """The events that it caused are handled before later ones."""
    done: list[int] = []

    def do(command: int) -> None:
        done.append(command)
        if command == 10:
            pump.feed(2)
            raise OSError("no room")

    pump = EventPump(Twice(), do)
    with pytest.raises(OSError, match="no room"):
        pump.feed(1)
    pump.feed(3)
    assert done == [10, 20, 21, 30, 31]
