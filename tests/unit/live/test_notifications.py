"""Notifications of a real koalad, which is killed by SIGKILL at the moments between: nobody is notified twice."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import live
import pytest

Document = dict[str, Any]
PATIENCE_S = 120.0
SECRET = "s3cr3t-part-of-a-url"


class Hook:
    """A webhook on the loopback interface. `before`: called for each request before its answer."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[Document] = []
        self.before: Callable[[], None] = lambda: None
        self.status = 204
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                hook.before()
                try:
                    self.send_response(hook.status)
                    self.end_headers()
                except OSError:
                    pass  # koalad was killed

            def log_message(self, *arguments: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/{SECRET}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


def pid_of(koala: Any) -> int:
    return int(koala("status", "--json").document["pid"])


def wait_for_death(koala: Any, pid: int) -> None:
    koala.until(lambda: not Path(f"/proc/{pid}").exists())


def kinds(koala: Any, job: int) -> list[str]:
    events = koala("show", job, "--json").document["events"]
    return [each["kind"] for each in events if each["kind"].startswith("notification")]


def test_a_job_and_a_sweep_notify_by_all_three_ways(
    fresh: Any, hook: Hook, tmp_path: Path, shell: Callable[..., Document]
) -> None:
    mails, reported = tmp_path / "mails", tmp_path / "reported"
    sendmail, command = tmp_path / "sendmail", tmp_path / "tell"
    sendmail.write_text(f"#!/bin/sh\necho to $2 >> {mails}; cat >> {mails}\n")
    command.write_text(f'#!/bin/sh\necho "$KOALA_ON $KOALA_JOB_ID $1" >> {reported}\n')
    sendmail.chmod(0o755)
    command.chmod(0o755)
    fresh.write_grid(
        {
            "grid": "live",
            "clusters": {"here": {"batch": "local", "connect": "local:", "shared": str(fresh.root / "here")}},
            "notify": [{"command": [str(command), SECRET], "on": ["started", "done", "failed", "cancelled"]}],
        }
    )
    assert fresh("up", PATH=f"{tmp_path}:{os.environ['PATH']}").status == 0
    file = fresh.write("fails.yaml", {"components": [shell("exit 3")]})
    by_grid = fresh("submit", file, "--json").document["id"]
    own = fresh.submit(
        shell("true"), notify=[{"webhook": hook.url}, {"mail": "me@example.org", "on": ["started", "done"]}]
    )
    silent = fresh("submit", file, "--notify", "none", "--json").document["id"]
    by_option = fresh(
        "submit", file, "--notify", hook.url, "--notify", f"command:{command} 'a  b'", "--notify-on", "failed", "--json"
    ).document["id"]
    sweep = fresh("sweep", "-p", "x=1:2", "--notify", hook.url, "--json", "--", "true", "{x}").document["id"]
    for job in (by_grid, own, silent, by_option, sweep):
        fresh.end(job)
    fresh.until(lambda: len(hook.got) >= 3)
    fresh.until(lambda: mails.exists() and mails.read_text().count("to me@example.org") >= 2)
    fresh.until(lambda: reported.exists() and len(reported.read_text().splitlines()) >= 3)
    assert sorted((each["job"]["id"], each["on"]) for each in hook.got) == sorted(
        [(own, "done"), (by_option, "failed"), (sweep, "done")]
    )
    assert sorted(reported.read_text().splitlines()) == sorted(
        [f"started {by_grid} {SECRET}", f"failed {by_grid} {SECRET}", f"failed {by_option} a  b"]
    )
    assert "Job " in mails.read_text()
    fresh.until(lambda: kinds(fresh, own) == ["notification_sent"] * 3)
    assert kinds(fresh, silent) == []
    shown = fresh("show", own, by_grid).out
    assert "webhook http://127.0.0.1:" in shown
    assert "mail to me@example.org (started, done)" in shown
    assert SECRET not in shown + fresh("status").out
    assert SECRET not in "".join(path.read_text() for path in fresh.root.rglob("koalad.log*"))
    report = fresh.work / "report.tar.gz"
    assert fresh("bugreport", "--yes", "--output", report).status == 0
    assert not [each for each in contents(report) if SECRET in each]


def contents(report: Path) -> Iterator[str]:
    import tarfile

    with tarfile.open(report) as packed:
        for each in packed.getmembers():
            if (file := packed.extractfile(each)) is not None:
                yield file.read().decode(errors="replace")


def test_koalad_is_killed_after_the_webhook_got_it_and_before_the_answer(
    small: Any, hook: Hook, shell: Callable[..., Document]
) -> None:
    assert small("up").status == 0
    pid = pid_of(small)
    hook.before = lambda: os.kill(pid, signal.SIGKILL)
    job = small.submit(shell("true"), notify=[{"webhook": hook.url}])
    wait_for_death(small, pid)
    hook.before = lambda: None
    assert small("up").status == 0
    small.until(lambda: kinds(small, job) == ["notification_unknown"])
    later = small.submit(shell("true"), notify=[{"webhook": hook.url}])
    small.until(lambda: kinds(small, later) == ["notification_sent"])
    assert [each["job"]["id"] for each in hook.got] == [job, later]
    assert "may not have arrived" in small("status").out


def test_koalad_is_killed_by_its_own_command(small: Any, tmp_path: Path, shell: Callable[..., Document]) -> None:
    """The command has done its work; that it has, only the command knows."""
    command, reported = tmp_path / "tell", tmp_path / "reported"
    command.write_text(f"#!/bin/sh\necho $KOALA_JOB_ID >> {reported}; kill -9 $PPID\n")
    command.chmod(0o755)
    assert small("up").status == 0
    pid = pid_of(small)
    job = small.submit(shell("true"), notify=[{"command": [str(command)]}])
    wait_for_death(small, pid)
    assert small("up").status == 0
    small.until(lambda: kinds(small, job) == ["notification_unknown"])
    assert reported.read_text().split() == [str(job)]


def test_koalad_is_killed_while_a_webhook_is_down_and_goes_on_afterwards(
    small: Any, hook: Hook, shell: Callable[..., Document]
) -> None:
    """No try is under way then, and none is lost."""
    hook.status = 503
    assert small("up").status == 0
    job = small.submit(shell("true"), notify=[{"webhook": hook.url}])
    small.until(lambda: "notification_not_taken" in kinds(small, job))
    status = small("status").out
    assert "for another try" in status
    assert "HTTP 503" in status
    assert SECRET not in status
    pid = pid_of(small)
    os.kill(pid, signal.SIGKILL)
    wait_for_death(small, pid)
    refused = len(hook.got)
    hook.status = 204
    assert small("up").status == 0
    small.until(lambda: kinds(small, job)[-1:] in (["notification_sent"], ["notification_unknown"]))
    if kinds(small, job)[-1] == "notification_sent":  # unless the kill met the next try
        assert len(hook.got) == refused + 1
    assert len({each["id"] for each in hook.got}) == 1


def test_koalad_is_killed_at_any_moment_and_nobody_is_notified_twice(
    small: Any, hook: Hook, shell: Callable[..., Document]
) -> None:
    assert small("up").status == 0
    jobs: list[int] = []
    for round_ in range(2):
        pid = pid_of(small)
        killer = threading.Timer(0.05 + 0.3 * round_, os.kill, (pid, signal.SIGKILL))
        file = small.write("one.yaml", {"components": [shell("true")], "notify": [{"webhook": hook.url}]})
        jobs += small("submit", *[file] * 6, "--json").document["ids"]
        small.end(jobs[-6])
        killer.start()
        wait_for_death(small, pid)
        assert small("up").status == 0
    for job in jobs:
        small.end(job)
    settled = ("notification_sent", "notification_unknown")
    small.until(lambda: all(kinds(small, job)[-1:] and kinds(small, job)[-1] in settled for job in jobs))
    got = [each["job"]["id"] for each in hook.got]
    assert sorted(set(got)) == sorted(got), "nobody is notified twice"
    sent = [job for job in jobs if kinds(small, job)[-1] == "notification_sent"]
    assert set(sent) <= set(got), "what is recorded as sent has arrived"


@pytest.mark.slow
def test_a_vacated_job_notifies_of_its_first_start_only_and_of_its_end_once(
    place: Path, hook: Hook, shell: Callable[..., Document]
) -> None:
    """koalad is killed while the job waits for its second start, and after it."""
    fresh = live.Koala(place, scheduling={"preempt": {"how": "vacate"}})
    try:
        assert fresh("up").status == 0
        go = place / "go"
        line = f"until test -e {go}; do sleep 0.1; done"
        job = fresh.submit(
            shell(line, 2, cluster="leiden"), notify=[{"webhook": hook.url, "on": ["started", "done", "failed"]}]
        )
        fresh.until(lambda: kinds(fresh, job) == ["notification_sent"])
        urgent = fresh.submit(shell(line, 2, cluster="leiden"), priority=0)
        fresh.until(lambda: fresh.job(urgent)["state"] == "running")
        kill_and_start(fresh)
        fresh("cancel", urgent)
        fresh.until(lambda: fresh.job(job)["components"][0]["attempt"] == 2 and fresh.job(job)["state"] == "running")
        kill_and_start(fresh)
        go.touch()
        assert fresh.end(job)["state"] == "done"
        fresh.until(lambda: len(kinds(fresh, job)) >= 2)
        assert [(each["on"], each["id"].split(".")[-2:]) for each in hook.got] == [
            ("started", ["started", "0"]),
            ("done", ["done", "0"]),
        ]
        assert kinds(fresh, job) == ["notification_sent"] * 2
    finally:
        fresh.stop()


def kill_and_start(koala: Any) -> None:
    koala.kill()
    assert koala("up").status == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--notify", "ftp://x/y"), ("--notify", "notify.0.webhook", "http:// or https://")),
        (("--notify", "a b"), ("notify.0.mail", "not a mail address")),
        (("--notify", "command:tell 'x"), ("No closing quotation",)),
        (("--notify", "none", "--notify", "me"), ("--notify none",)),
        (("--notify-on", "done"), ("--notify-on has no --notify",)),
        (("--notify", "me", "--notify-on", "dne"), ("notify.0.on", "Did you mean done?")),
    ],
)
def test_bad_options_submit_nothing(
    koala: Any, shell: Callable[..., Document], options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    before = koala.ids()
    koala("submit", koala.write("job.yaml", {"components": [shell("true")]}), *options).refused(2, *words)
    assert koala.ids() == before
