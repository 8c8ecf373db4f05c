"""The local queue as its users have it: real commands, real jobs, through the dialect that the KCM uses."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters import errors
from koalapy_adapters.batch import local
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Capacity, Dialect, JobStatus
from koalapy_adapters.errors import Result
from koalapy_adapters.host.descendants import descendants as descendants_of
from programs import need

Await = Callable[..., Any]


class Queue:
    """One local queue, asked through its dialect."""

    def __init__(self, shared: Path, command: list[str], slots: int) -> None:
        self.shared = shared
        self.cluster = BatchSettings(user="me", directory=str(shared), command=command, slots=slots)
        self.number = 0
        local.parse_describe(run(local.describe_argv(self.cluster)))

    def submit(self, script: str, processors: int = 1, walltime_s: int = 600, **wishes: Any) -> str:
        """A tagged job whose wrapper is this line for sh; its batch id."""
        self.number += 1
        job = self.job(script, processors, walltime_s, **wishes)
        path = Path(job.directory, "script")
        path.write_text(local.script(job))
        return local.parse_submit(run(local.submit_argv(job, str(path))))

    def job(self, script: str, processors: int = 1, walltime_s: int = 600, **wishes: Any) -> BatchJob:
        tag = f"k{self.number:014d}"
        directory = self.shared / "inst" / tag
        directory.mkdir(parents=True, exist_ok=True)
        return BatchJob(tag, str(directory), ["/bin/sh", "-c", script], processors, walltime_s, **wishes)

    def capacity(self) -> Capacity:
        return local.parse_capacity(self.cluster, [run(argv) for argv in local.capacity_argvs(self.cluster)])

    def status(self, batch_id: str) -> JobStatus:
        return local.parse_status(run(local.status_argv([batch_id])))[batch_id]

    def cancel(self, *batch_ids: str) -> None:
        local.parse_cancel(run(local.cancel_argv(batch_ids)))

    def find(self, number: int) -> JobStatus | None:
        tag = f"k{number:014d}"
        return local.parse_find(run(local.find_argv(self.cluster, tag)), tag)

    def directory(self, number: int) -> Path:
        return self.shared / "inst" / f"k{number:014d}"

    @property
    def files(self) -> Path:
        return self.shared / "local-queue" / f"local-{os.uname().nodename}"

    def keeper(self, number: int) -> int:
        return int(json.loads((self.files / "runs" / str(number)).read_text().splitlines()[0])[1])

    def rows(self) -> list[dict[str, Any]]:
        """The changes in the journal."""
        return [row for line in (self.files / "jobs.jsonl").read_text().splitlines() if (row := json.loads(line))]

    def server(self) -> int:
        return int(json.loads((self.files / "server.json").read_text())["pid"])


def run(argv: list[str]) -> Result:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240, check=False)
    return Result(argv, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def queue(tmp_path: Path, pushed: Path, processes: Callable[[bytes], list[int]]) -> Iterator[Queue]:
    yield (made := Queue(tmp_path, [sys.executable, "-I", "-S", str(pushed)], slots=4))
    for pid in [*processes(f"@{made.shared}/local-queue".encode()), *processes(f"{made.shared}/local-queue".encode())]:
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(pid, signal.SIGKILL)


def ended(queue: Queue, batch_id: str, await_that: Await) -> JobStatus:
    await_that(lambda: queue.status(batch_id).state == "ended")
    return queue.status(batch_id)


def test_a_job_on_another_host_is_not_over_because_its_server_was_killed(queue: Queue, await_that: Await) -> None:
    """It goes on there with its keeper, so only its end is reported; and it is not submitted a second time."""
    running, over = queue.submit("sleep 600"), queue.submit("exit 3")
    assert ended(queue, over, await_that).exit_status == 3
    await_that(lambda: queue.status(running).state == "running")
    os.kill(server := queue.server(), signal.SIGKILL)
    await_that(lambda: not Path(f"/proc/{server}").exists())
    elsewhere = queue.files.rename(queue.files.with_name("local-elsewhere"))
    address = json.loads((elsewhere / "server.json").read_text())
    (elsewhere / "server.json").write_text(json.dumps({**address, "host": "elsewhere", "boot": "another"}))
    os.utime(elsewhere / "server.json", (1, 1))
    ids = [each.replace(str(queue.files), str(elsewhere)) for each in (running, over)]
    (found,) = local.parse_status(run(local.status_argv(ids))).values()
    assert (found.batch_id, found.exit_status) == (ids[1], 3)
    with pytest.raises(errors.ClusterError, match="has no server now"):
        queue.find(1)
    assert queue.find(2) == found
    for pid in descendants_of(int(json.loads((elsewhere / "runs" / "1").read_text().splitlines()[0])[1])):
        os.kill(pid, signal.SIGKILL)


def test_it_is_a_dialect() -> None:
    offered = {name for name in Dialect.__annotations__ if hasattr(local, name)}
    assert offered == set(Dialect.__annotations__)


def test_a_job_runs_and_its_exit_status_is_known(queue: Queue, await_that: Await) -> None:
    batch_id = queue.submit("echo here; echo there >&2; pwd; exit 3")
    status = ended(queue, batch_id, await_that)
    assert (status.ending, status.exit_status, status.name) == ("exited", 3, "k00000000000001")
    assert (queue.directory(1) / "batch.out").read_text() == f"here\nthere\n{queue.directory(1)}\n"


def test_it_runs_on_the_oldest_python_too(
    tmp_path: Path, interpreter: list[str], pushed: Path, await_that: Await
) -> None:
    queue = Queue(tmp_path, [*interpreter, str(pushed)], slots=1)
    ids = [queue.submit(f"exit {status}") for status in (0, 3)]
    assert [ended(queue, batch_id, await_that).exit_status for batch_id in ids] == [0, 3]
    endless = queue.submit("sleep 600")
    queue.cancel(endless)
    assert ended(queue, endless, await_that).ending == "cancelled"


def test_inside_a_job_the_dialect_knows_where_it_is(queue: Queue, await_that: Await) -> None:
    batch_id = queue.submit("env", processors=3)
    ended(queue, batch_id, await_that)
    environment = dict(line.split("=", 1) for line in (queue.directory(1) / "batch.out").read_text().splitlines())
    assert local.batch_id(environment) == batch_id
    assert local.restarts(environment) == 0
    [host] = local.hosts(environment, lambda path: "")
    assert (host.name, host.processors) == (os.uname().nodename, 3)
    assert local.launch(environment, [], []) == []


def test_a_jobs_environment_is_a_clean_one(queue: Queue, await_that: Await, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCM_PRIVATE", "x")
    batch_id = queue.submit("env; ls -l /proc/$$/fd | wc -l")
    ended(queue, batch_id, await_that)
    assert "KCM_PRIVATE" not in (queue.directory(1) / "batch.out").read_text()


def test_slots_are_given_first_come_first_served(queue: Queue, await_that: Await) -> None:
    def hold(processors: int) -> str:
        return queue.submit("echo >began; while [ ! -e go ]; do sleep 0.01; done", processors)

    ids = [hold(3), hold(2), hold(1)]
    await_that((queue.directory(1) / "began").exists)
    assert [queue.status(i).state for i in ids] == ["running", "queued", "queued"], "a small job passed a larger one"
    capacity = queue.capacity()
    assert (capacity.total, capacity.idle, capacity.ours, capacity.others) == (4, 0, 3, 0)
    assert capacity.allocated == ["k00000000000001"]
    assert capacity.pending == ["k00000000000002", "k00000000000003"]
    assert set(capacity.statuses) == set(ids)
    (queue.directory(1) / "go").touch()
    await_that(lambda: all((queue.directory(n) / "began").exists() for n in (2, 3)))
    assert (queue.capacity().idle, queue.capacity().free_nodes) == (1, [[1, 1]])
    for number in (2, 3):
        (queue.directory(number) / "go").touch()
    for batch_id in ids:
        assert ended(queue, batch_id, await_that).exit_status == 0
    assert queue.capacity().idle == 4


def test_the_lowest_are_behind_all_others(queue: Queue, await_that: Await) -> None:
    first = queue.submit("sleep 600", 4)
    lowest = queue.submit("echo >began; sleep 600", 4, lowest=True)
    last = queue.submit("echo >began; sleep 600", 4)
    queue.cancel(first)
    await_that((queue.directory(3) / "began").exists)
    assert queue.status(lowest).state == "queued"
    queue.cancel(last)
    await_that((queue.directory(2) / "began").exists)
    queue.cancel(lowest)


def test_others_jobs_are_counted_as_others(queue: Queue, tmp_path: Path, await_that: Await) -> None:
    script = tmp_path / "mine.sh"
    script.write_text(f"#!/bin/sh\n#KOALA processors=3\n#KOALA directory={tmp_path}\nsleep 600\n")
    argv = [str(tmp_path / "local-queue/queue"), "submit", str(script)]
    ids = [json.loads(run(argv).stdout)["id"] for _ in range(2)]
    await_that(lambda: queue.capacity().others == 3)
    capacity = queue.capacity()
    assert (capacity.ours, capacity.waiting_local, capacity.idle, capacity.statuses) == (0, 1, 0, {})
    assert (capacity.wanted_local, capacity.whole_nodes) == (2, []), "one of four is free"
    assert not capacity.others_hidden
    queue.cancel(*ids)
    assert (queue.capacity().wanted_local, queue.capacity().whole_nodes) == (0, [[4, 1]])


def test_a_cancel_ends_the_whole_tree(queue: Queue, await_that: Await, processes: Callable[[bytes], list[int]]) -> None:
    batch_id = queue.submit("(setsid sleep 600 &); trap 'echo stopped; exit 9' TERM; echo >began; sleep 600 & wait")
    await_that((queue.directory(1) / "began").exists)
    queue.cancel(batch_id)
    status = ended(queue, batch_id, await_that)
    assert (status.ending, status.exit_status) == ("cancelled", 9)
    assert "stopped" in (queue.directory(1) / "batch.out").read_text()
    assert processes(f"KOALA_ALLOCATION_JOB={batch_id}".encode()) == []


def test_a_queued_job_is_cancelled_without_having_run(queue: Queue) -> None:
    first, second = queue.submit("sleep 600", 4), queue.submit("echo >ran")
    queue.cancel(second)
    assert (queue.status(second).state, queue.status(second).ending) == ("ended", "cancelled")
    queue.cancel(first, second, "999@" + second.partition("@")[2])
    assert not (queue.directory(2) / "ran").exists()


def test_a_walltime_is_kept(queue: Queue, await_that: Await) -> None:
    status = ended(queue, queue.submit("sleep 600", walltime_s=1), await_that)
    assert (status.ending, status.exit_status) == ("walltime", 143)


def test_what_a_job_leaves_behind_is_ended(
    queue: Queue, await_that: Await, processes: Callable[[bytes], list[int]]
) -> None:
    batch_id = queue.submit("(setsid sleep 600 </dev/null >/dev/null 2>&1 &); exit 0")
    assert ended(queue, batch_id, await_that).ending == "exited"
    assert processes(f"KOALA_ALLOCATION_JOB={batch_id}".encode()) == []


def test_when_a_keeper_is_killed_its_job_is_lost_honestly(
    queue: Queue, await_that: Await, processes: Callable[[bytes], list[int]]
) -> None:
    first, second = queue.submit("echo >began; (setsid sleep 600 &); sleep 600", 4), queue.submit("echo >ran")
    await_that((queue.directory(1) / "began").exists)
    kill(queue.keeper(1))
    status = queue.status(first)
    assert (status.state, status.ending, status.exit_status) == ("ended", "lost", None)
    await_that(lambda: not processes(f"KOALA_ALLOCATION_JOB={first}".encode()))
    assert ended(queue, second, await_that).exit_status == 0


def kill(pid: int) -> None:
    """kill(2) returns before it is dead."""
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([descriptor], [], [], 120)[0]
    os.close(descriptor)


def test_jobs_outlive_whoever_submitted_them(queue: Queue, await_that: Await) -> None:
    """Killed with its whole process group, as a KCM's connection may be."""
    job = queue.job("echo >began; while [ ! -e go ]; do sleep 0.01; done; exit 4")
    script = Path(job.directory, "script")
    script.write_text(local.script(job))
    words = " ".join(local.submit_argv(job, str(script)))
    shell = subprocess.Popen(["/bin/sh", "-c", f"{words}; sleep 600"], start_new_session=True, stdout=subprocess.PIPE)
    assert shell.stdout is not None
    batch_id = json.loads(shell.stdout.readline())["id"]
    await_that(Path(job.directory, "began").exists)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    shell.stdout.close()
    assert queue.status(batch_id).state == "running"
    Path(job.directory, "go").touch()
    assert ended(queue, batch_id, await_that).exit_status == 4


def test_a_killed_server_loses_no_job_and_starts_none_twice(queue: Queue, await_that: Await) -> None:
    """Jobs that ran go on and end, also while there is no server; those that waited start after them."""
    first = queue.submit("echo >>began; while [ ! -e go ]; do sleep 0.01; done; exit 4", 3)
    second = queue.submit("echo >>began; while [ ! -e go ]; do sleep 0.01; done; exit 5")
    third = queue.submit("echo >>began; exit 6")
    await_that(lambda: all((queue.directory(number) / "began").exists() for number in (1, 2)))
    kill(queue.server())
    (queue.directory(2) / "go").touch()
    await_that(lambda: b"\n5 0" in (queue.files / "runs/2").read_bytes())
    assert [queue.status(each).state for each in (first, second)] == ["running", "ended"]
    assert ended(queue, third, await_that).exit_status == 6
    kill(queue.server())
    queue.cancel(first)
    assert (ended(queue, first, await_that).ending, queue.status(second).exit_status) == ("cancelled", 5)
    assert [(queue.directory(number) / "began").read_text() for number in (1, 2, 3)] == ["\n"] * 3
    assert list((queue.files / "runs").iterdir()) == []


@pytest.mark.parametrize("wait", [0.0, 0.002, 0.005, 0.01, 0.02])
def test_a_server_killed_at_any_instant_loses_no_job(queue: Queue, await_that: Await, wait: float) -> None:
    ids = [queue.submit(f"echo {number} >>../ran", 2) for number in range(6)]
    for _ in range(3):
        server = queue.server()
        time.sleep(wait)
        kill(server)
        queue.capacity()
    for batch_id in ids:
        assert ended(queue, batch_id, await_that).exit_status == 0
    assert sorted((queue.shared / "inst/ran").read_text().split()) == [str(number) for number in range(6)]


def test_a_job_whose_server_was_killed_just_before_its_start_is_started(queue: Queue, await_that: Await) -> None:
    batch_id = queue.submit("echo >>began; sleep 600", 4)
    await_that((queue.directory(1) / "began").exists)
    second = queue.submit("echo >>began")
    kill(queue.server())
    row = {**queue.rows()[-1], "state": "running", "hosts": [[os.uname().nodename, 1]], "started_at": 1.0}
    with (queue.files / "jobs.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    queue.cancel(batch_id)
    assert ended(queue, second, await_that).exit_status == 0
    assert (queue.directory(2) / "began").read_text() == "\n"


_TWO_KEEPERS = """
import os
import sys

sys.path.insert(0, sys.argv[1])
from koalapy_adapters.allocation import jobs, keepers, outer_job

place, outer = sys.argv[2], outer_job.own_machine(1)
queue = jobs.Queue({outer.hosts[0].name: 1}, None)
job = queue.add(jobs.Job(
    id=0, name="k", directory=place, output=os.path.join(place, "out"), processors=1, walltime_s=60, submitted_at=1,
    command=["/bin/sh", "-c", "echo >>began; sleep 1; exit 3"],
))
for _ in range(2):
    keepers.Keepers(queue, outer, place).start(job)
for _ in range(2):
    os.wait()
"""


def test_of_two_keepers_of_one_job_one_runs_it(tmp_path: Path, pushed: Path) -> None:
    """As when a server was killed while it started the job, and the next one starts it too."""
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _TWO_KEEPERS, str(pushed), str(tmp_path)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "began").read_text() == "\n"
    assert (tmp_path / "runs/1").read_text().splitlines()[1:] == ["3 0"]


def test_a_server_without_work_leaves_and_comes_back(queue: Queue, await_that: Await) -> None:
    batch_id = queue.submit("exit 3")
    assert ended(queue, batch_id, await_that).exit_status == 3
    before = queue.server()
    os.kill(before, signal.SIGTERM)
    await_that(lambda: not Path(f"/proc/{before}").exists())
    assert queue.status(batch_id).exit_status == 3
    assert queue.capacity().total == 4
    assert queue.server() != before


# ---- its files


def damage(queue: Queue, how: str) -> None:
    """Damage the files of the queue, whose server was killed."""
    kill(queue.server())
    other = "{}\n" + "".join(json.dumps({**row, "processors": "four"}) + "\n" for row in queue.rows())
    for name in ["jobs.jsonl"] if how.endswith("alone") else ["jobs.jsonl", "jobs.copy.jsonl"]:
        file = queue.files / name
        whole = file.read_bytes()
        texts = {"empty": b"", "cut": whole[: len(whole) // 2], "zeros": b"\0" * len(whole), "a list": b"[1]"}
        file.write_bytes(texts.get(how.partition(" alone")[0], other.encode()))


@pytest.mark.parametrize("how", ["empty alone", "cut alone", "zeros alone", "wrong type alone"])
def test_a_damaged_file_costs_nothing_since_there_is_a_copy(queue: Queue, await_that: Await, how: str) -> None:
    first = queue.submit("echo >began; while [ ! -e go ]; do sleep 0.01; done; exit 4", 4)
    second = queue.submit("exit 5")
    await_that((queue.directory(1) / "began").exists)
    damage(queue, how)
    assert [queue.status(each).state for each in (first, second)] == ["running", "queued"]
    (queue.directory(1) / "go").touch()
    assert ended(queue, first, await_that).exit_status == 4
    assert ended(queue, second, await_that).exit_status == 5
    assert queue.submit("true").startswith("3@")


@pytest.mark.parametrize("how", ["empty", "cut", "zeros", "a list", "wrong type"])
def test_of_a_lost_state_what_runs_goes_on_and_nothing_runs_twice(queue: Queue, await_that: Await, how: str) -> None:
    """No command is refused, and no id is given out again."""
    first = queue.submit("echo >>began; while [ ! -e go ]; do sleep 0.01; done; exit 4", 4)
    second = queue.submit("echo >>began")
    await_that((queue.directory(1) / "began").exists)
    damage(queue, how)
    found = queue.status(second)
    assert (found.state, found.ending) == ("ended", "lost")
    assert queue.status(first).state == "running"
    assert queue.find(1) is not None
    assert (queue.files / "jobs.damaged.jsonl").exists()
    third = queue.submit("exit 6")
    assert int(third.partition("@")[0]) > 100_000
    (queue.directory(1) / "go").touch()
    assert ended(queue, first, await_that).exit_status == 4
    assert ended(queue, third, await_that).exit_status == 6
    assert (queue.directory(1) / "began").read_text() == "\n"
    assert not (queue.directory(2) / "began").exists()


def test_a_lost_state_whose_jobs_lost_their_keepers_too_ends_what_is_left(
    queue: Queue, await_that: Await, processes: Callable[[bytes], list[int]]
) -> None:
    first = queue.submit("echo >began; sleep 600")
    await_that((queue.directory(1) / "began").exists)
    keeper = queue.keeper(1)
    damage(queue, "empty")
    kill(keeper)
    assert queue.status(first).ending == "lost"
    await_that(lambda: not processes(f"KOALA_ALLOCATION_JOB={first}".encode()))


def test_what_a_command_prints_is_on_disk_before_it_prints_it(queue: Queue, tmp_path: Path, await_that: Await) -> None:
    """Both journals are flushed before the answer, and the record of a start before the job runs."""
    need("strace")
    trace = tmp_path / "trace"
    server = queue.server()
    calls = ["-f", "-y", "-e", "trace=write,fsync,linkat,link,execve,sendto", "-o", str(trace), "-p", str(server)]
    tracer = subprocess.Popen(["strace", *calls], stderr=subprocess.PIPE)
    assert tracer.stderr is not None
    tracer.stderr.readline()
    queue.submit("exec true")
    await_that(lambda: "execve" in trace.read_text())
    tracer.terminate()
    tracer.wait()
    tracer.stderr.close()
    steps = [line.partition(" ")[2].strip() for line in trace.read_text().splitlines()]

    def at(*words: str) -> int:
        return next(place for place, step in enumerate(steps) if all(word in step for word in words))

    answered = at("sendto(", "id")
    for name in ("jobs.jsonl", "jobs.copy.jsonl"):
        assert at("write(", name) < at("fsync", name) < answered, steps
    assert at("fsync", "runs/1.") < at("link", "runs/1") < at("fsync", "runs>") < at("execve"), steps


def test_after_a_restart_of_the_machine_what_ran_is_lost_and_what_waited_runs(queue: Queue, await_that: Await) -> None:
    """Even if another process has the keeper's pid and start by now."""
    first, second = queue.submit("echo >began; sleep 600", 4), queue.submit("echo >ran")
    await_that((queue.directory(1) / "began").exists)
    keeper = queue.keeper(1)
    kill(queue.server())
    run = queue.files / "runs/1"
    row, _, _, boot = json.loads(run.read_text())
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    run.write_text(json.dumps([row, os.getpid(), start, boot[::-1]]) + "\n")
    kill(keeper)
    assert queue.status(first).ending == "lost"
    assert ended(queue, second, await_that).exit_status == 0


def test_many_at_once_are_all_kept(queue: Queue, await_that: Await) -> None:
    jobs = []
    for number in range(1, 25):
        queue.number = number
        job = queue.job(f"echo {number} >>../ran")
        Path(job.directory, "script").write_text(local.script(job))
        jobs.append(local.submit_argv(job, job.directory + "/script"))
    with ThreadPoolExecutor(4) as pool:
        ids = [local.parse_submit(result) for result in pool.map(run, jobs)]
    assert len(set(ids)) == 24
    for batch_id in ids:
        assert ended(queue, batch_id, await_that).exit_status == 0
    ran = (queue.shared / "inst/ran").read_text().split()
    assert sorted(map(int, ran)) == list(range(1, 25))


def test_two_directories_are_two_queues(queue: Queue, tmp_path: Path, await_that: Await) -> None:
    other = Queue(tmp_path / "other", queue.cluster.command, slots=1)
    held, free = queue.submit("sleep 600", 4), other.submit("echo >ran")
    assert ended(other, free, await_that).exit_status == 0
    assert queue.status(held).state == "running"
    assert local.parse_status(run(local.status_argv([free]))).keys() == {free}


def test_a_job_is_found_by_its_tag_long_after_it_left(queue: Queue, await_that: Await) -> None:
    """Also if a crash has cut off the line of another one."""
    batch_id = queue.submit("exit 5")
    ended(queue, batch_id, await_that)
    kill(queue.server())
    rows = [{**row, "ended_at": row["ended_at"] and row["ended_at"] - 3600} for row in queue.rows()]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (queue.files / "jobs.jsonl").write_text("{}\n" + text)
    (queue.files / "jobs.copy.jsonl").write_text("{}\n" + text + text[:99])
    await_that(lambda: queue.capacity().statuses == {})
    found = queue.find(1)
    assert found is not None
    assert (found.batch_id, found.exit_status) == (batch_id, 5)
    assert queue.find(99) is None


def test_more_than_there_are_slots_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.RequestError, match="it asks for 5 processors, and the queue has 4") as caught:
        queue.submit("true", 5)
    assert caught.value.code == "too_many_processors"
    assert queue.capacity().pending == []


def test_a_job_that_no_longer_fits_is_stuck_and_holds_up_nobody(queue: Queue, await_that: Await) -> None:
    first, large = queue.submit("sleep 600", 4), queue.submit("true", 4)
    queue.cluster = queue.cluster._replace(slots=2)
    queue.capacity()
    small = queue.submit("true", 1)
    queue.cancel(first)
    assert ended(queue, small, await_that).exit_status == 0
    assert queue.status(large).stuck == "too_many_processors"


def test_native_wishes_reach_the_script_and_bad_ones_are_reported(queue: Queue, await_that: Await) -> None:
    assert ended(queue, queue.submit("sleep 600", native=["walltime=1"]), await_that).ending == "walltime"
    with pytest.raises(errors.RequestError, match="colour=red"):
        queue.submit("true", native=["colour=red"])


def test_a_directory_that_is_gone_ends_the_job_and_not_the_queue(queue: Queue, await_that: Await) -> None:
    job = queue.job("true")
    script = queue.shared / "script"
    script.write_text(local.script(job._replace(directory=str(queue.shared / "gone"))))
    batch_id = local.parse_submit(run(local.submit_argv(job, str(script))))
    assert ended(queue, batch_id, await_that).exit_status == 126


@pytest.mark.parametrize(
    "words",
    [[], ["submit"], ["/tmp"], ["/tmp/x", "dance"], ["/tmp/x", "--slots", "many", "status"]],
)
def test_called_badly_it_prints_its_usage(queue: Queue, words: list[str]) -> None:
    result = run([*queue.cluster.command, "allocation", *words])
    assert result.exit_status == 2
    assert "usage" in result.stderr


def test_a_directory_that_cannot_be_used_is_the_sites_fault(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cluster = queue.cluster._replace(directory=str(tmp_path / "file"))
    with pytest.raises(errors.ClusterError, match="cannot be used"):
        local.parse_describe(run(local.describe_argv(cluster)))


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (Result([], None, "", ""), errors.TransientError),
        (Result([], 1, "", "python3: not found"), errors.UnreadableError),
        (Result([], 0, "{}", ""), errors.UnreadableError),
        (Result([], 0, "[]", ""), errors.UnreadableError),
        (Result([], 0, '{"jobs": [{"id": "1"}]}', ""), errors.UnreadableError),
        (Result([], 0, '{"jobs": [{"id": "1@x", "state": "dreaming"}]}', ""), errors.UnreadableError),
    ],
    ids=["time-out", "no python", "nothing", "a list", "half a job", "unknown state"],
)
def test_an_answer_that_is_none_is_an_error(result: Result, error: type[Exception]) -> None:
    with pytest.raises(error):
        local.parse_status(result)


def test_a_refusal_is_reported_in_its_words_and_not_as_a_document() -> None:
    error = {
        "code": "lacked",
        "whose": "request",
        "message": "The queue has no queues.",
        "advice": "Leave it out.",
    }
    with pytest.raises(errors.RequestError) as caught:
        local.parse_submit(Result(["allocation"], 1, json.dumps({"error": error}) + "\n", ""))
    assert (caught.value.message, caught.value.advice) == ("The queue has no queues.", "Leave it out.")
    assert caught.value.result is not None
    assert (caught.value.result.exit_status, caught.value.result.words) == (1, "")
