"""`relay: files` on a real cluster whose nodes cannot connect to their head; and the message where it is not set."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest
import real_grid
from cable import Cable, Way
from host_rule import input_rule

sh = real_grid.sh
CUT = ["-p", "tcp", "--syn", "--dport", "32768:60999", "-j", "DROP"]  # where a KCM listens, and nothing of Slurm does
FILES = {"relay": "files"}
RENDEZVOUS = """
if [ "$KOALA_RANK" = 0 ]; then $KOALA_RENDEZVOUS put address "$(hostname):4711"; fi
$KOALA_RENDEZVOUS get address
$KOALA_RENDEZVOUS barrier all "$KOALA_SIZE"
echo through
"""


@pytest.fixture
def cut_off(testgrid: Any) -> Iterator[Any]:
    """beta's nodes cannot connect to beta's head."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(input_rule(testgrid.containers, "beta", *CUT))
        yield testgrid


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a koalad over some clusters."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def begin(testgrid: Any, **clusters: Any) -> Any:
            times = {"claim": {"timeout": "90s"}, "barrier": {"timeout": "40s"}, "retries": {"submission": 1}}
            koalad = real_grid.Koalad(testgrid, tmp_path, clusters, **times)
            stack.callback(koalad.stop)
            return koalad

        yield begin


def output(koalad: Any, job: int, **which: Any) -> list[str]:
    return b"".join(koalad.grid.output(job, **which)).decode().splitlines()


def kill_kcm(koalad: Any, testgrid: Any, host: str) -> None:
    """Kill the KCM on a head node. After a loss koalad may not have started the next one yet: wait for it."""
    kill = ["pkill", "-KILL", "-u", "koala", "-f", "pyz kcm"]  # its status is 0 if it has killed one
    koalad.until(lambda: testgrid.containers.exec(host, kill).exit_status == 0)


@pytest.mark.slow
def test_a_job_over_two_clusters_of_which_one_has_a_relay_by_files(cut_off: Any, start: Callable[..., Any]) -> None:
    koalad = start(cut_off, alpha={}, beta=FILES)
    koalad.idle()
    job = koalad.end(koalad.submit(sh(4, RENDEZVOUS, cluster="alpha"), sh(4, RENDEZVOUS, cluster="beta")))
    assert job["state"] == "done", job["reason"]
    lines = output(koalad, job["id"])
    assert lines.count("through") == 8
    [address] = set(lines) - {"through"}
    assert address.endswith(":4711")
    assert job["completion_failures"] == job["submission_failures"] == 0
    [released, started] = [[each[name] for each in job["components"]] for name in ("released_at", "started_at")]
    print("released", released, "started", started)


def test_koalad_and_kcm_are_killed_in_the_midst(cut_off: Any, start: Callable[..., Any]) -> None:
    """At its barrier, while it runs, and while its output is followed."""
    koalad = start(cut_off, alpha={}, beta=FILES)
    koalad.idle()
    script = "until [ -e go ]; do sleep 0.1; done; $KOALA_RENDEZVOUS barrier b 8; echo over"
    job = koalad.submit(sh(4, script, cluster="alpha"), sh(4, script, cluster="beta"))
    koalad.until(lambda: koalad.job(job)["components"][1]["batch_id"])
    kill_kcm(koalad, cut_off, "beta")
    koalad.until(lambda: koalad.job(job)["started_at"])
    koalad.kill()
    koalad.start()
    koalad.until(lambda: all(each["state"] == "running" for each in koalad.job(job)["components"]))
    following = koalad.grid.output(job, follow=True)
    koalad.connected("beta")
    kill_kcm(koalad, cut_off, "beta")
    for host in ("alpha", "beta"):
        shared = "/shared/koala" if host == "beta" else "/home/koala/.koala"
        cut_off.containers.check(host, ["bash", "-c", f"for each in {shared}/*/k*/work; do touch $each/go; done"])
    found = koalad.end(job)
    assert found["state"] == "done", found["reason"]
    assert [each["attempt"] for each in found["components"]] == [1, 1]
    assert output(koalad, job) == ["over"] * 8
    with contextlib.suppress(Exception):
        list(following)  # it may have been cut


@contextlib.contextmanager
def over_cables(testgrid: Any, directory: Path, **clusters: Any) -> Iterator[tuple[Any, dict[str, Cable]]]:
    """A koalad over these clusters, and the cable to each."""
    known, cables, described = testgrid.grid()["clusters"], {}, {}
    with contextlib.ExitStack() as stack:
        for name, changed in clusters.items():
            user, _, address = known[name]["connect"].removeprefix("ssh://").partition("@")
            cables[name] = Cable((address, 22), Way(None), Way(None))
            stack.callback(cables[name].close)
            hosts = directory / f"known_hosts.{name}"
            hosts.write_text(Path(known[name]["known_hosts"]).read_text().replace(f"{address} ", "127.0.0.1 "))
            way = {"connect": f"ssh://{user}@127.0.0.1:{cables[name].port}", "known_hosts": str(hosts)}
            described[name] = known[name] | changed | way
        koala = live.Koala(directory / "live", described, claim={"timeout": "90s"}, barrier={"timeout": "60s"})
        stack.callback(koala.stop)
        assert koala("up").status == 0
        yield koala, cables


def test_every_line_comes_once_over_cut_connections_killed_kcms_and_paused_heads(
    cut_off: Any, testgrid: Any, tmp_path: Path
) -> None:
    """On Slurm, on Slurm by files and on Grid Engine, two nodes each: by `koala run`, `koala logs -f`, Grid.output."""
    script = """
    number=0
    until [ -e go ]; do
        number=$((number+1)); printf 'rank %s ' $KOALA_RANK; echo "line $number"; sleep 0.1
    done
    printf 'rank %s ends after %s' $KOALA_RANK $number
    """
    places = {"alpha": {}, "beta": FILES, "gamma": {}}
    said: dict[str, list[bytes]] = {"run": [], "logs": [], "grid": []}
    with over_cables(testgrid, tmp_path, **places) as (koala, cables), koala.client() as grid:

        def read(name: str, process: Any) -> None:
            said[name] = [process.communicate()[0]]

        def are_up(wanted: bool) -> bool:
            return all((each["connection"] == "up") is wanted for each in grid.clusters())

        koala.until(lambda: are_up(True) and all(each["idle"] for each in grid.clusters()))
        asked = [word for name in places for word in ("-n", 5, "--on", name)]  # of nodes with four processors
        run = koala.start("run", *asked, "--", "bash", "-c", script)
        koala.until(lambda: [job for job in koala.ids() if koala.job(job)["started_at"]])
        [job] = koala.ids()
        readers = [
            threading.Thread(target=read, args=("run", run)),
            threading.Thread(target=read, args=("logs", koala.start("logs", "-f", job))),
            threading.Thread(target=lambda: said["grid"].extend(grid.output(job, follow=True))),
        ]
        for reader in readers:
            reader.start()
        koala.until(lambda: b"".join(said["grid"]).count(b"line 10\n") == 15)
        assert all(len(each["hosts"]) == 2 for each in koala.job(job)["components"])
        for cable in cables.values():
            cable.down.break_after(777)
        koala.until(lambda: all(cable.down.has_broken for cable in cables.values()))
        koala.until(lambda: are_up(True))
        for name in places:
            kill_kcm(koala, cut_off, name)
        testgrid.pause(*places)
        try:
            koala.until(lambda: are_up(False))
        finally:
            testgrid.unpause(*places)
        for name in places:
            shared = "/shared/koala" if name == "beta" else "/home/koala/.koala"
            cut_off.containers.check(name, ["bash", "-c", f"for each in {shared}/*/k*/work; do touch $each/go; done"])
        for reader in readers:
            reader.join()
        assert koala.job(job)["state"] == "done"
        assert run.returncode == 0
        wrong = {name: wrong_lines(b"".join(pieces)) for name, pieces in said.items()}
    assert wrong == {"run": [], "logs": [], "grid": []}


def wrong_lines(said: bytes) -> list[str]:
    """Return which of the lines of 15 ranks are lost, repeated or torn, in words."""
    found: dict[str, list[str]] = {f"[{rank // 5}.{rank}]": [] for rank in range(15)}
    wrong = []
    for line in said.decode().splitlines():
        label, _, rest = line.partition(" ")
        rank = label.rstrip("]").rpartition(".")[2]
        if label in found and rest.startswith(f"rank {rank} "):
            found[label].append(rest.removeprefix(f"rank {rank} "))
        else:
            wrong.append(f"torn: {line!r}")
    for label, lines in found.items():
        wanted = [f"line {number}" for number in range(1, len(lines))] + [f"ends after {len(lines) - 1}"]
        if lines != wanted:
            wrong.append(f"{label}: {len(lines)} lines, first wrong: {next(zip_wrong(lines, wanted), None)}")
    return wrong


def zip_wrong(lines: list[str], wanted: list[str]) -> Iterator[tuple[str, str]]:
    return ((line, good) for line, good in zip(lines, wanted, strict=True) if line != good)


def test_a_cancel_is_seen_soon_and_leaves_nothing(cut_off: Any, start: Callable[..., Any]) -> None:
    koalad = start(cut_off, beta=FILES)
    koalad.idle()
    job = koalad.submit(sh(8, "trap 'echo told; exit' TERM; echo ready; sleep 600 & wait"))
    koalad.until(lambda: output(koalad, job).count("ready") == 8)
    began = time.monotonic()
    koalad.grid.cancel(job)
    assert koalad.end(job)["state"] == "cancelled"
    print(f"cancelled after {time.monotonic() - began:.1f} s")
    assert not koalad.batch_jobs()


@pytest.mark.slow
def test_no_message_file_is_left_of_an_ended_attempt(cut_off: Any, start: Callable[..., Any]) -> None:
    koalad = start(cut_off, beta=FILES)
    koalad.idle()
    assert koalad.end(koalad.submit(sh(1, "true")))["state"] == "done"
    look = ["bash", "-c", "cd /shared/koala; ls -d */k*/post/* */post.*/* 2>/dev/null; true"]

    def left() -> list[str]:
        return [name for name in cut_off.containers.check("beta", look).split() if not name.endswith("/alive")]

    koalad.until(lambda: left() == [])


@pytest.mark.slow
def test_nodes_that_cannot_connect_are_reported_in_a_sentence_that_names_what_to_set(
    cut_off: Any, start: Callable[..., Any]
) -> None:
    koalad = start(cut_off, beta={})
    koalad.idle()
    began = time.monotonic()
    job = koalad.end(koalad.submit(sh(1, "true")))
    print(f"said after {time.monotonic() - began:.1f} s")
    reported = koalad.grid.show(job["id"])
    assert (job["state"], job["reason_code"]) == ("failed", "shut_out"), reported
    assert "cannot connect to the relay of its head node" in job["reason"], reported
    assert "relay: files" in str(reported)
