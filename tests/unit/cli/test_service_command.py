"""`koala service` where no systemd of the user answers."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app

BUS = "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n"


@pytest.fixture(params=["no systemctl", "no bus"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a grid file; its `bin` is the whole PATH."""
    (tmp_path / "bin").mkdir()
    if request.param == "no bus":
        (tmp_path / "bin" / "systemctl").write_text(BUS)
        (tmp_path / "bin" / "systemctl").chmod(0o755)
    grid = {"clusters": '{here: {batch: local, connect: "local:", shared: /tmp/unused, slots: 1}}'}
    (tmp_path / "grid.yaml").write_text(f"grid: das\nclusters: {grid['clusters']}\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KOALA_GRID", str(tmp_path / "grid.yaml"))
    return tmp_path


def test_install_writes_nothing_and_names_the_lines_of_crontab(place: Path) -> None:
    before = sorted(os.listdir(place))
    done = CliRunner().invoke(app, ["service", "install"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("koala: No systemd of yours answers here, so nothing was written: ")
    assert "@reboot koala up" in done.stderr
    assert "*/5 * * * * koala up" in done.stderr
    assert sorted(os.listdir(place)) == before


def test_remove_removes_what_an_earlier_install_has_written(place: Path) -> None:
    units = place / "config" / "systemd" / "user"
    (units / "koalad@das.service.d").mkdir(parents=True)
    (units / "koalad@das.service.d" / "koala.conf").write_text("[Service]\n")
    (units / "koalad@.service").write_text("[Unit]\n")
    (units / "default.target.wants").mkdir()
    (units / "default.target.wants" / "koalad@das.service").symlink_to(units / "koalad@.service")
    done = CliRunner().invoke(app, ["service", "remove"])
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir(units)) == ["default.target.wants"]
    assert os.listdir(units / "default.target.wants") == []
    assert CliRunner().invoke(app, ["service", "remove"]).exit_code == 2
