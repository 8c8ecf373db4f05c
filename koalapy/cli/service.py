"""`koala service`: makes koalad a service of the user's systemd, which starts it at boot and after a failure."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import FAILED, errors_reported, out, print_json
from koalapy.client import Grid
from koalapy.common.data import data_path
from koalapy.common.locations import Locations, home
from koalapy.config import Command, GridFile, Local
from koalapy.koalad.gridfile import read_grid_file
from koalapy.model.errors import KoalaError, OurError, RequestError

_TEMPLATE = "koalad@.service"
_DROP_IN = "koala.conf"  # in koalad@GRID.service.d
_CALL_S = 120.0  # for one call of systemctl or loginctl
_START_S = 660.0  # for koalad to be ready: longer than the unit's TimeoutStartSec
_KEPT = ("PATH", "XDG_STATE_HOME", "XDG_CONFIG_HOME")  # of this command's environment
_LINES = "`@reboot koala up` and `*/5 * * * * koala up` (docs/service.md)"

app = typer.Typer()
service_app = options.group(app, "service", "Run koalad as a systemd service.")

NoStart = Annotated[bool, typer.Option("--no-start", help="Install only; the next boot or systemctl starts it.")]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step. A `vital` step that was not done makes the command fail."""

    step: str
    done: bool
    text: str
    vital: bool = True


@service_app.command("install", short_help="Have systemd start koalad at boot and after a failure.")
def install(no_start: NoStart = False, grid: options.Grid = None, json: options.Json = False) -> None:
    """Have systemd start koalad at boot, and again when it fails or hangs. Reports what was done.

    Writes a user unit, enables and starts it, and lets it run while you are not logged in (lingering), where the host
    permits that. Run it again after you have moved koalapy, or changed the clusters of the grid file.
    """
    with errors_reported():
        locations = Locations.of(grid)
        if locations.grid_file is None:
            message = f"{locations.grid} is a name, not a grid file."
            raise RequestError("no_grid_file", message, "Give the path of its grid file with --grid.")
        found = read_grid_file(locations.grid_file)
        if missing := _why_no_systemd():
            message = f"No systemd of yours answers here, so nothing was written: {missing}."
            raise OurError("no_systemd", message, f"Two lines of crontab have nearly the same effect: {_LINES}.")
        locations.make()
        steps = [_write(locations, locations.grid_file, found)]
        steps += _hand_over(locations, start=not no_start)
    _print_steps(locations.grid, steps, json)


@service_app.command("remove")
def remove(grid: options.Grid = None, json: options.Json = False) -> None:
    """Stop the service's koalad, and remove its unit. Jobs run on. Lingering is left as it is."""
    with errors_reported():
        locations = Locations.of(grid)
        unit = unit_of(locations.grid)
        drop_in = _directory() / f"{unit}.d"
        if not drop_in.exists():
            message = f"There is no service {unit}."
            raise RequestError("no_service", message, "`koala service install` makes one.")
        if missing := _why_no_systemd():
            steps = [Step("disabled", False, f"no systemd of yours answers that could run it: {missing}", vital=False)]
            steps += [_delete(drop_in)]
        else:
            steps = [_call("disabled", ["disable", "--now", unit], f"{unit} is stopped and disabled; jobs run on")]
        if steps[0].done:
            steps += [_delete(drop_in), _call("reloaded", ["daemon-reload"], "systemd has read its units again")]
    _print_steps(locations.grid, steps, json)


def unit_of(grid: str) -> str:
    """Return the name of a grid's unit. Its characters (letters, digits, - and _) need no escape in systemd."""
    return f"koalad@{grid}.service"


def drop_in_of(locations: Locations, grid_file: Path, grid: GridFile) -> str:
    """Return the part of a unit file (systemd.unit(5)) that depends on the machine and the grid."""
    command = [sys.executable, "-m", "koalapy.koalad", "--grid", str(grid_file), "--log-file", str(locations.log)]
    environment = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    lines = [
        "# Written by `koala service install`, which writes it anew.",
        "[Service]",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in environment.items()),
        "ExecStart=",
        "ExecStart=" + " ".join(_quoted(word).replace("$", "$$") for word in command),
        f"StandardOutput=append:{_escaped(str(locations.log))}",
        f"StandardError=append:{_escaped(str(locations.log))}",
    ]
    if any(isinstance(each, Local | Command) for cluster in grid.clusters.values() for each in cluster.connections):
        lines += [
            "# Jobs and commands of clusters on this host are children of koalad, and may need what these forbid."
        ]
        lines += [f"{name}={value}" for name, value in _unhardened()]
    return "\n".join(lines) + "\n"


def _unhardened() -> list[tuple[str, str]]:
    """Return settings that undo the template's hardening, since in a user unit each implies NoNewPrivileges."""
    names = re.findall(r"^(NoNew\w+|Lock\w+|Restrict\w+|SystemCall\w+)=(\S+)", _template(), re.MULTILINE)
    return [(name, "no" if value == "yes" else "") for name, value in names]


def _template() -> str:
    return (data_path("configs") / "systemd" / _TEMPLATE).read_text()


def _directory() -> Path:
    """Return the directory of the user's own units."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME") or ".")
    return (configured if configured.is_absolute() else home() / ".config") / "systemd" / "user"


def _write(locations: Locations, grid_file: Path, grid: GridFile) -> Step:
    directory = _directory()
    files = {
        directory / _TEMPLATE: _template(),
        directory / f"{unit_of(locations.grid)}.d" / _DROP_IN: drop_in_of(locations, grid_file, grid),
    }
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        message = f"{error.filename} cannot be written: {error.strerror}."
        raise OurError("not_written", message, "Make room or change permissions there, then try again.") from error
    return Step("written", True, " and ".join(map(str, files)) + " are written")


def _hand_over(locations: Locations, start: bool) -> list[Step]:
    """Perform the steps after the files are written. The steps after a failed one are omitted."""
    unit = unit_of(locations.grid)
    steps = [_call("reloaded", ["daemon-reload"], "systemd has read its units again")]
    if steps[-1].done:
        steps.append(_call("enabled", ["enable", unit], f"{unit} starts with this user's systemd"))
    if not steps[-1].done:
        return steps
    steps.append(_linger())
    if start:
        steps.append(_start(locations, unit))
    return steps


def _linger() -> Step:
    """Enable lingering. Without it, a user's systemd starts at the first login and ends with the last."""
    user = str(os.getuid())
    if _run(["loginctl", "show-user", user, "--property=Linger", "--value"])[1] == "yes":
        return Step("lingering", True, "it runs from boot on, also while you are not logged in", vital=False)
    status, words = _run(["loginctl", "enable-linger", user])
    if status == 0:
        return Step("lingering", True, "it runs from boot on, also while you are not logged in", vital=False)
    advice = f"it runs only while you are logged in: {words}. Ask for `loginctl enable-linger {user}`"
    return Step("lingering", False, advice, vital=False)


def _start(locations: Locations, unit: str) -> Step:
    running = _pid_of(locations)
    if running is not None and _run(["systemctl", "--user", "is-active", unit])[0] == 0:
        advice = f"`systemctl --user restart {unit}` has it read its unit again; jobs run on"
        return Step("started", True, f"it runs already (pid {running}); {advice}")
    if running is not None:
        advice = f"`koala down`, then `systemctl --user start {unit}` replaces it; jobs run on"
        return Step("started", False, f"a koalad that is not a service runs already (pid {running}); {advice}")
    step = _call("started", ["start", unit], f"{unit} is started", _START_S)
    if not step.done:
        return Step("started", False, f"{step.text}; look at the end of {locations.log}")
    return step


def _pid_of(locations: Locations) -> int | None:
    """Return the process id of the koalad that answers; None if none does."""
    try:
        with Grid(str(locations.grid_file)) as koalad:
            return int(koalad.status()["pid"])
    except KoalaError:
        return None


def _delete(drop_in: Path) -> Step:
    """Remove this grid's part of the unit, and with the last part the template."""
    directory = drop_in.parent
    (directory / "default.target.wants" / drop_in.name.removesuffix(".d")).unlink(missing_ok=True)  # as `disable` does
    shutil.rmtree(drop_in, ignore_errors=True)
    if drop_in.exists():
        return Step("removed", False, f"{drop_in} cannot be removed")
    if not list(directory.glob("koalad@*.service.d")):
        (directory / _TEMPLATE).unlink(missing_ok=True)
    return Step("removed", True, f"{drop_in} is removed")


def _why_no_systemd() -> str:
    """Return the words of systemctl if no systemd of this user answers; '' if one does."""
    status, words = _run(["systemctl", "--user", "show", "--property=Version"])
    return "" if status == 0 else words.rstrip(".")


def _call(name: str, arguments: Sequence[str], done: str, timeout_s: float = _CALL_S) -> Step:
    status, words = _run(["systemctl", "--user", *arguments], timeout_s)
    if status == 0:
        return Step(name, True, done)
    return Step(name, False, f"`systemctl --user {' '.join(arguments)}` failed: {words}")


def _run(command: list[str], timeout_s: float = _CALL_S) -> tuple[int, str]:
    """Run a command. Return its exit status and output."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {timeout_s:.0f} s"
    words = " ".join((done.stdout + done.stderr).decode(errors="replace").split())
    return done.returncode, words or f"exit status {done.returncode}"


def _quoted(word: str) -> str:
    return '"' + _escaped(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _print_steps(grid: str, steps: Sequence[Step], json: bool) -> None:
    """Print the steps. End the command with status 1 if a vital one was not done."""
    if json:
        done = [{"step": each.step, "done": each.done, "text": each.text} for each in steps]
        print_json({"schema": "koala.service/1", "grid": grid, "unit": unit_of(grid), "steps": done})
    else:
        for each in steps:
            out.print(f"{'done' if each.done else 'NOT DONE'}: {each.text}")
    if any(each.vital and not each.done for each in steps):
        raise typer.Exit(FAILED)
