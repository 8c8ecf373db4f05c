"""koalad as a service: of a real systemd of this user's, and started by cron, which gives it hardly an environment."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import programs
import pytest

from koalapy.client.daemon import wait_for_end

Document = dict[str, Any]
PATIENCE_S = 120.0
SYSTEMD = Path("/lib/systemd/systemd")
# systemd serves a user only where the host looks as if it was booted with it.
AS_IF_BOOTED = 'mount -t tmpfs none /run/systemd && mkdir /run/systemd/system && exec "$0" --user --log-target=console'
UNIT = "koalad@live.service"


class Service:
    """A grid, and a systemd that looks after it. Its output goes to a file beside."""

    def __init__(self, koala: Any, manager: "subprocess.Popen[bytes]") -> None:
        self.koala, self.manager = koala, manager
        self.units = Path(koala.environment["XDG_CONFIG_HOME"]) / "systemd" / "user"

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        command = ["systemctl", "--user", *arguments]
        done = subprocess.run(command, env=self.koala.environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def has(self, name: str) -> str:
        """A property of the unit."""
        return self.systemctl("show", UNIT, f"--property={name}", "--value")

    def pid(self) -> int:
        return int(self.koala("status", "--json").document["pid"])

    def replaced(self, pid: int) -> int:
        """The next koalad, once it serves."""
        assert wait_for_end(pid, PATIENCE_S)

        def other() -> int | None:
            answer = self.koala("status", "--json")
            found = int(answer.document["pid"]) if answer.status == 0 else pid
            return found if found != pid else None

        return int(self.koala.until(other))


@pytest.fixture
def service(fresh: Any) -> Iterator[Service]:
    if not SYSTEMD.exists():
        programs.leave_out("there is no systemd here (on Debian: tests/install-programs, as root)")
    if os.getuid() != 0:
        programs.leave_out("only root can run a systemd of its own here")
    run = fresh.root / "run"
    run.mkdir(mode=0o700)
    fresh.environment |= {"XDG_CONFIG_HOME": str(fresh.root / "config"), "HOME": str(fresh.root)}
    said = fresh.root / "systemd.log"
    with said.open("wb") as log:
        manager = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", AS_IF_BOOTED, str(SYSTEMD)],
            env={"PATH": os.environ["PATH"], "HOME": str(fresh.root), "XDG_RUNTIME_DIR": str(run)}
            | {"XDG_CONFIG_HOME": str(fresh.root / "config")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (run / "systemd" / "private").exists():
            assert manager.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)  # nothing reports when it listens
        yield Service(fresh, manager)
        fresh("down", "--cancel")
    finally:
        manager.terminate()
        manager.wait(PATIENCE_S)


def test_installed_it_runs_comes_back_when_it_is_killed_or_hangs_and_goes(
    service: Service, shell: Callable[..., Document]
) -> None:
    koala = service.koala
    answer = koala("service", "install", "--json")
    assert answer.status == 0, answer
    document = answer.document
    assert (document["schema"], document["grid"], document["unit"]) == ("koala.service/1", "live", UNIT)
    steps = {each["step"]: each for each in document["steps"]}
    assert list(steps) == ["written", "reloaded", "enabled", "lingering", "started"]
    assert [name for name, each in steps.items() if not each["done"]] in ([], ["lingering"])  # as this host has it
    assert service.has("ActiveState") == "active"
    assert service.has("StatusText") == "serves"
    first = service.pid()
    assert service.has("MainPID") == str(first)
    assert "runs already" in koala("service", "install").out
    assert service.pid() == first

    gate = koala.work / "gate"
    lines = koala.work / "lines"
    program = shell(f"echo started >>{lines}; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended >>{lines}")
    job = koala.submit(program)
    koala.until(lambda: lines.exists() and koala.job(job)["state"] == "running")

    # Killed, it is started again, and the job, a child of its, has run on.
    (service.units / f"{UNIT}.d" / "quick.conf").write_text(
        "[Service]\nRestartSec=100ms\nWatchdogSec=4s\nTimeoutAbortSec=1s\n"
    )
    service.systemctl("daemon-reload")
    os.kill(first, signal.SIGKILL)
    second = service.replaced(first)
    assert koala.job(job)["state"] == "running"

    # Paused, it feeds no watchdog.
    os.kill(second, signal.SIGSTOP)
    third = service.replaced(second)
    assert service.has("NRestarts") == "2"

    # Stopped, it ends for good. Started again, it finds the job.
    assert koala("down").status == 0
    assert wait_for_end(third, PATIENCE_S)
    koala.until(lambda: service.has("ActiveState") == "inactive")
    service.systemctl("start", UNIT)
    gate.touch()
    assert koala.end(job)["state"] == "done"
    assert lines.read_text() == "started\nended\n"

    answer = koala("service", "remove")
    assert answer.status == 0, answer
    koala("status").refused(3, "is not running")
    assert not list(service.units.glob("koalad*"))
    koala("service", "remove").refused(2, f"There is no service {UNIT}")


def test_it_replaces_no_koalad_that_is_no_service(service: Service) -> None:
    koala = service.koala
    assert koala("up").status == 0
    before = service.pid()
    answer = koala("service", "install")
    assert answer.status == 1
    assert f"NOT DONE: a koalad that is not a service runs already (pid {before}); `koala down`" in answer.out
    assert service.pid() == before


def test_without_systemd_it_reports_it_and_how_else(fresh: Any) -> None:
    config = fresh.root / "config"
    answer = fresh("service", "install", XDG_CONFIG_HOME=str(config), PATH="/nonexistent")
    answer.refused(1, "No systemd of yours answers here, so nothing was written", "@reboot koala up")
    assert not config.exists()
    fresh("service", "install", "--grid", "nobody").refused(2, "nobody is a name, not a grid file")


def test_systemd_finds_nothing_wrong_with_the_unit(fresh: Any) -> None:
    """Also with what is undone for clusters on this host."""
    config, systemctl = fresh.root / "config", fresh.root / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text("#!/bin/sh\n")  # it takes all that is asked of it
    systemctl.chmod(0o755)
    installed = fresh("service", "install", "--no-start", XDG_CONFIG_HOME=str(config), PATH=str(systemctl.parent))
    assert installed.status == 0, installed
    units = config / "systemd" / "user"
    command = [programs.need("systemd-analyze"), "--user", "verify", "--man=no", str(units / UNIT)]
    shutil.copy(units / "koalad@.service", units / UNIT)
    environment = {**fresh.environment, "XDG_CONFIG_HOME": str(config), "HOME": str(fresh.root)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_cron_starts_it_and_finds_it_running(fresh: Any) -> None:
    """As `@reboot koala up` and `*/10 * * * * koala up` do: no terminal, hardly an environment, another directory."""
    home = fresh.root / "home"
    (home / ".config" / "koala").mkdir(parents=True)
    shutil.copy(fresh.grid_file, home / ".config" / "koala" / "grid.yaml")
    cron = {"HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "root"}
    koala = str(Path(sys.executable).with_name("koala"))

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        line = " ".join([koala, *words])
        return subprocess.run(
            ["/bin/sh", "-c", line], env=cron, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    fresh.environment = cron | {"KOALA_GRID": str(home / ".config" / "koala" / "grid.yaml")}
    first = run("up")
    assert first.returncode == 0, first.stderr
    assert "\x1b" not in first.stdout + first.stderr
    pid = json.loads(run("status", "--json").stdout)["pid"]
    again = run("up")
    assert again.returncode == 0
    assert f"was up already (pid {pid})" in again.stdout
    os.kill(pid, signal.SIGKILL)
    assert wait_for_end(pid, PATIENCE_S)
    assert run("up").returncode == 0
    assert json.loads(run("status", "--json").stdout)["pid"] != pid
    assert run("down").returncode == 0
