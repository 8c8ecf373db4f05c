"""Several nodes of a PBS job, whose launchers carry neither input nor output: the whole batch script, run for real."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters import proofs
from koalapy_adapters.batch import pbs, pbs_bridge, pbs_meeting
from koalapy_adapters.batch.pbs_starting import Launchers
from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.host import json_lines

Processes = Callable[[bytes], list[int]]
Await = Callable[..., Any]
Meeting = tuple[socket.socket, pbs_meeting.Meeting]  # and who listens there

NODEFILE = "one\none\ntwo\ntwo\nthree\n"
WHERE = "echo $KOALA_RANK $KOALA_LOCAL_RANK $SLURMD_NODENAME"
AT_WORK = "echo $$ >pid.$SLURMD_NODENAME.$KOALA_RANK; sleep 600"

# What stands for PBS here: on a real node its daemon starts the command, in a session of its own and without our input
# and output. Several nodes of one machine are distinguished by the first name that the wrapper asks for.
SPAWN = 'setsid -w env SLURMD_NODENAME=$host PBS_NODENUM=$number "$@" </dev/null >>"$PBS_TASKS" 2>&1'
LAUNCHERS = {
    "pbs_tmrsh": f"""#!/bin/sh
host=$1; shift
[ "$host" != "$PBS_DEAD" ] || {{ echo no such node >&2; exit 3; }}
echo "$@" >>"$PBS_TASKS.started"
number=1; exec {SPAWN}
""",
    "pbsdsh": f"""#!/bin/sh
[ "$1 $2" = "-u --" ] || exit 2
shift 2; number=0
for host in $(uniq $PBS_NODEFILE); do
    if [ "$host" = "$PBS_DEAD" ]; then echo no such node >&2; else {SPAWN} & fi
    number=$((number+1))
done
wait
""",
}


class Cluster:
    """Runs an attempt's batch script on three nodes."""

    def __init__(self, world: Any, directory: Path, launcher: str) -> None:
        self._world = world
        self._nodefile = directory / "nodefile"
        self._nodefile.write_text(NODEFILE)
        self.tasks = directory / "tasks"
        self.output = directory / "17.head.OU"  # the job's own, where PBS's daemon keeps it
        self._bin = directory / "bin"
        self._bin.mkdir()
        if launcher:
            (self._bin / launcher).write_text(LAUNCHERS[launcher])
            (self._bin / launcher).chmod(0o755)

    def start(self, program: str, **wishes: Any) -> tuple[Any, Any]:
        dead = wishes.pop("dead", "none")
        relay, attempt = (
            self._world.relay(),
            self._world.attempt(program, batch="pbs", **{"processors": 5, **wishes}),
        )
        command = [*self._world.command, "wrapper", str(attempt.path)]
        script = attempt.write("script", pbs.script(BatchJob(attempt.tag, str(attempt.path), command, 5, 600)))
        environment = self.environment(dead)
        argv = ["/bin/sh", str(script)]
        with self.output.open("ab") as output:
            attempt.wrapper = subprocess.Popen(
                argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=output, start_new_session=True
            )
        return relay, attempt

    def environment(self, dead: str = "none") -> dict[str, str]:
        """The variables of a command in the job, on its first node. `dead`: the node on which nothing starts."""
        return {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "HOME": str(self._world.home),
            "PBS_JOBID": "17.head",
            "PBS_NODEFILE": str(self._nodefile),
            "PBS_TASKS": str(self.tasks),
            "PBS_DEAD": dead,
            "SLURMD_NODENAME": "one",
        }


@pytest.fixture(params=["pbs_tmrsh", "pbsdsh"])
def cluster(request: pytest.FixtureRequest, world: Any, tmp_path: Path) -> Cluster:
    return Cluster(world, tmp_path, request.param)


def written(attempt: Any) -> int:
    return sum(path.stat().st_size > 0 for path in attempt.path.glob("work/pid.*"))


def test_every_node_runs_its_share(cluster: Cluster) -> None:
    relay, attempt = cluster.start(f"{WHERE}; $KOALA_RENDEZVOUS barrier b 5")
    relay.release(attempt)
    assert attempt.wait() == 0
    assert [attempt.output(rank).strip() for rank in range(5)] == [
        "0 0 one",
        "1 1 one",
        "2 0 two",
        "3 1 two",
        "4 0 three",
    ]
    assert (attempt.words(), cluster.tasks.read_text()) == ("", "")
    assert list(attempt.path.glob(".bridge*")) == []


def test_agents_run_on_the_oldest_python_too(world: Any, tmp_path: Path, interpreter: list[str], pushed: Path) -> None:
    world.command = [*interpreter, str(pushed)]
    relay, attempt = Cluster(world, tmp_path, "pbs_tmrsh").start(WHERE)
    relay.release(attempt)
    assert attempt.wait() == 0
    assert attempt.output(4) == "4 0 three\n"
    assert attempt.words() == ""


def test_long_messages_pass_both_ways_complete(cluster: Cluster) -> None:
    program = (
        'value=$SLURMD_NODENAME$(head -c 60000 /dev/zero | tr "\\0" "\\001")\n'
        '$KOALA_RENDEZVOUS put from.$SLURMD_NODENAME "$value"\n'
        "for node in one two three; do $KOALA_RENDEZVOUS get from.$node | cksum; done; $KOALA_RENDEZVOUS barrier b 3"
    )
    relay, attempt = cluster.start(program, launch="per-node")
    relay.release(attempt)
    assert attempt.wait() == 0
    assert attempt.output(0) == attempt.output(1) == attempt.output(2)
    assert len(set(attempt.output(0).splitlines())) == 3


def test_the_first_non_zero_status_ends_all_nodes(cluster: Cluster, processes: Processes, await_that: Await) -> None:
    relay, attempt = cluster.start("[ $SLURMD_NODENAME = three ] && exit 9; sleep 600")
    relay.release(attempt)
    assert attempt.wait() == 9
    await_that(lambda: processes(str(attempt.path).encode()) == [])


def test_the_queue_of_a_pilot_starts_its_nodes_by_bridges(
    world: Any, tmp_path: Path, processes: Processes, await_that: Await
) -> None:
    """Its server starts them, in the queue's directory: it shares no other one with the nodes."""
    cluster = Cluster(world, tmp_path, "pbs_tmrsh")
    queues = world.shared / "allocations"

    def ask(words: str) -> Any:
        argv = [*world.command, "allocation", str(queues), words]
        asked = subprocess.run(argv, env=cluster.environment(), cwd="/", capture_output=True, text=True, check=False)
        return json.loads(asked.stdout)

    try:
        await_that(lambda: ask("capacity").get("nodes") == [[2, 2], [2, 2], [1, 1]])
        started = cluster.tasks.with_name("tasks.started").read_text()
        met_in = {os.path.dirname(path) for path in re.findall(r" --end (\S+) ", started)}
        assert met_in == {str(path) for path in queues.glob("pbs-17.head")}
        assert list(queues.glob("*/.bridge*")) == []
    finally:
        for address in queues.glob("*/server.json"):
            os.kill(json.loads(address.read_text())["pid"], signal.SIGTERM)
    await_that(lambda: processes(str(queues).encode()) == [])


def test_a_directory_that_takes_no_meeting_is_named_the_same_at_each_try(tmp_path: Path) -> None:
    """Else whoever shows only what is new would show it again and again."""
    argv = [sys.executable, "-m", "koalapy_adapters", "pbs-bridge", "two", "agent", "one,two"]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "PBS_EXEC": str(tmp_path)}
    (tmp_path / "pbs_tmrsh").write_text("#!/bin/sh\n")
    (tmp_path / "pbs_tmrsh").chmod(0o755)
    said = {
        subprocess.run(argv, env=environment, cwd="/proc", capture_output=True, text=True, check=False).stderr
        for _ in range(2)
    }
    assert said == {"koala bridge: /proc cannot be written to: No such file or directory\n"}


@pytest.mark.parametrize("victim", ["wrapper", "bridge"])
def test_when_an_end_is_killed_nothing_survives(
    world: Any, tmp_path: Path, processes: Processes, await_that: Await, victim: str
) -> None:
    relay, attempt = Cluster(world, tmp_path, "pbs_tmrsh").start(AT_WORK, grace=0.2, orphan_timeout=20.0)
    relay.release(attempt)
    await_that(lambda: written(attempt) == 5)
    (bridge, *_) = [pid for pid in attempt.children() if b"pbs-bridge" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(bridge if victim == "bridge" else attempt.wrapper.pid, signal.SIGKILL)
    attempt.wait()
    if victim == "bridge":
        assert attempt.record()["error"]["code"] == "agent_lost"
    await_that(lambda: processes(str(attempt.path).encode()) == [])


def test_a_signal_to_the_whole_job_leaves_time_for_a_record(
    cluster: Cluster, processes: Processes, await_that: Await
) -> None:
    """PBS signals all processes of the job's session on the first node to stop, and kills them later. The bridge is one
    of them; what the other nodes' processes end with still comes over it.
    """
    status = "status=0; [ $SLURMD_NODENAME != three ] || status=7; trap 'exit $status' TERM"
    relay, attempt = cluster.start(f"{status}; {AT_WORK} & wait", grace=30.0)
    relay.release(attempt)
    await_that(lambda: written(attempt) == 5)
    for pid in [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if of_session(pid, attempt.wrapper)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    attempt.wait()
    record = attempt.record()
    assert (record["ending"], record["error"]["code"], record["exit_status"]) == ("killed", "signalled", 7)
    await_that(lambda: processes(str(attempt.path).encode()) == [])


# As a real 23.06 writes them, and Torque with the same words.
TOO_MUCH = (Path(__file__).parents[1] / "samples" / "pbs" / "job-mem-exceeded.job-stderr").read_text()
TOO_LONG = (Path(__file__).parents[1] / "samples" / "pbs" / "job-walltime-exceeded.job-stderr").read_text()


@pytest.mark.parametrize(
    ("said", "ending", "code"),
    [
        (TOO_MUCH, "failed", "memory_exceeded"),
        (TOO_LONG, "walltime", "walltime_exceeded"),
        ("", "killed", "signalled"),
        ("=>> PBS: job killed: something else\n", "killed", "signalled"),
    ],
    ids=["memory", "walltime", "nothing", "other words"],
)
def test_why_pbs_stops_a_job_is_in_its_record(world: Any, tmp_path: Path, said: str, ending: str, code: str) -> None:
    """PBS writes it into the job's output just before the signal; no history is needed."""
    cluster = Cluster(world, tmp_path, "")
    relay, attempt = cluster.start("echo up >up; sleep 600", processors=2)
    relay.release(attempt)
    relay.report(attempt, "running")
    with cluster.output.open("a") as output:
        output.write(said)
    attempt.wrapper.send_signal(signal.SIGTERM)
    attempt.wait()
    record = attempt.record()
    assert (record["ending"], record["error"]["code"]) == (ending, code)
    assert record["error"]["words"] == (said.strip() if code != "signalled" else "")


def of_session(pid: int, leader: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(pid) == leader.pid
    return False


def test_a_node_on_which_nothing_can_be_started_is_named(world: Any, tmp_path: Path) -> None:
    relay, attempt = Cluster(world, tmp_path, "pbs_tmrsh").start("exit 0", dead="three")
    ended = relay.report(attempt, "ended")
    attempt.wait()
    assert (ended["ending"], ended["error"]["code"]) == ("failed", "agent_not_started")
    assert "three" in ended["error"]["message"]
    said = "koala bridge: the agent of node three could not be started"
    assert sorted(attempt.words().splitlines())[0].startswith(said)
    assert "no such node" in attempt.words()


def test_an_agent_that_has_not_connected_when_the_wrapper_leaves_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    """Torque's one launcher for all reports of no node that it could not be started. Here our input is at its end."""
    with pbs_meeting.listen() as listener:
        bridge = pbs_bridge.Bridge(listener, "token", ["two", "three"], ["three"], Launchers())
        bridge.gather()
        bridge.pass_on()
    out, err = capfd.readouterr()
    arrived = json_lines.Assembler().feed(out.encode())
    assert arrived == [json_lines.Piece(1, {"event": "lost", "sure": False})]
    assert "node three did not come" in err


def test_a_site_without_any_launcher_is_reported(world: Any, tmp_path: Path) -> None:
    relay, attempt = Cluster(world, tmp_path, "").start("exit 0")
    relay.report(attempt, "ended")
    attempt.wait()
    assert "neither pbs_tmrsh nor pbsdsh" in attempt.words()
    assert list(attempt.path.glob(".bridge*")) == []


def until_it_hangs_up(connection: socket.socket) -> bytes:
    arrived = b""
    with contextlib.suppress(ConnectionResetError):  # as one does that has not read all
        while data := connection.recv(1 << 16):
            arrived += data
    return arrived


def admit_one(listener: socket.socket, token: str, admitted: list[int | None]) -> None:
    with listener.accept()[0] as guest:
        admitted.append(pbs_meeting.admit(guest, token))


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    with pbs_meeting.listen() as listener:
        yield listener, pbs_meeting.arrange(listener)._replace(addresses=["127.0.0.1"])


def test_the_token_is_in_a_file_for_this_user_alone(tmp_path: Path, meeting: Meeting) -> None:
    path = tmp_path / "meeting"
    pbs_meeting.write(str(path), meeting[1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert pbs_meeting.read(str(path)) == meeting[1]


@pytest.mark.parametrize(
    "said",
    [b"000001" + b"b" * 32, "²00001".encode("latin-1") + b"b" * 32, b"00001" + b"b" * 32, b"b" * 38, b"1" * 5, b""],
    ids=["another token", "no digits", "short", "no number", "shorter", "nothing"],
)
@pytest.mark.parametrize("shown", [b"f" * 64, b"\xff" * 64, b"f" * 63, b""], ids=["wrong", "no text", "short", "none"])
def test_only_who_proves_to_know_the_token_is_let_in(meeting: Meeting, said: bytes, shown: bytes) -> None:
    listener, arranged = meeting
    with socket.create_connection(("127.0.0.1", arranged.port)) as guest:
        guest.sendall(said + shown)
        guest.shutdown(socket.SHUT_WR)
        assert pbs_meeting.admit(listener.accept()[0], arranged.token) is None
        arrived = until_it_hangs_up(guest)
    assert arranged.token.encode() not in arrived
    assert not arrived.endswith(b"+")


@pytest.mark.parametrize("answer", ["guessed", "its own words", "nothing"])
def test_a_program_that_listens_instead_learns_no_token_and_is_refused(meeting: Meeting, answer: str) -> None:
    """Other users of the first node may listen there, when the wrapper has left."""
    listener, arranged = meeting
    arrived = []

    def listen() -> None:
        with listener.accept()[0] as guest:
            first = guest.recv(1 << 16)
            answers = {"guessed": b"0" * 96, "its own words": first[6:] + b"0" * 64, "nothing": b""}
            guest.sendall(answers[answer] + b"+")
            with contextlib.suppress(OSError):  # it has hung up already
                guest.shutdown(socket.SHUT_WR)
            arrived.append(first + until_it_hangs_up(guest))

    stranger = threading.Thread(target=listen)
    stranger.start()
    with pytest.raises(pbs_meeting.Unmet):
        pbs_meeting.connect(arranged, 7)
    stranger.join()
    assert (arrived[0][:6], len(arrived[0])) == (b"000007", 38)
    assert arranged.token.encode() not in arrived[0]


def test_a_recorded_handshake_cannot_be_replayed(meeting: Meeting) -> None:
    listener, arranged = meeting
    first, theirs = b"000007", "a" * 32
    admitted: list[int | None] = []
    near = threading.Thread(target=admit_one, args=(listener, arranged.token, admitted))
    near.start()
    with socket.create_connection(("127.0.0.1", arranged.port)) as guest:
        guest.sendall(first + theirs.encode())
        ours = guest.recv(96, socket.MSG_WAITALL)[:32].decode()
        shown = proofs.proof(arranged.token.encode(), "far", first.decode(), theirs, ours).encode()
        guest.sendall(shown)
        assert guest.recv(1) == b"+"
        near.join()
    assert admitted == [7]
    with socket.create_connection(("127.0.0.1", arranged.port)) as again:
        again.sendall(first + theirs.encode() + shown)
        assert pbs_meeting.admit(listener.accept()[0], arranged.token) is None


def test_the_far_end_goes_on_to_the_next_address() -> None:
    with pbs_meeting.listen() as listener:
        meeting = pbs_meeting.arrange(listener)._replace(addresses=["nowhere.invalid", "127.0.0.1"])
        admitted: list[int | None] = []
        near = threading.Thread(target=admit_one, args=(listener, meeting.token, admitted))
        near.start()
        pbs_meeting.connect(meeting, 7).close()
        near.join()
        assert admitted == [7]
    with pytest.raises(pbs_meeting.Unmet, match="cannot connect to nowhere"):
        pbs_meeting.connect(meeting, 7)


def test_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert pbs_bridge.main(["node"]) == 2
    assert "usage" in capsys.readouterr().err
