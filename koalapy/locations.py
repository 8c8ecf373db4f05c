"""Where koalad's files lie: one koalad per grid name and user (DESIGN, section 8)."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from koalapy.model.errors import RequestError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.IGNORECASE)
_GRID_LINE = re.compile(r"^grid:\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Locations:
    """The directories and files of one grid's koalad. `grid_file` is None where only the grid's name is known."""

    grid: str
    grid_file: Path | None

    @staticmethod
    def of(grid: str | Path | None = None) -> "Locations":
        """Of a grid file's path, of a grid's name, or of the default grid file ($KOALA_GRID, else the user's own).

        Raises RequestError where the grid file is missing or names no grid.
        """
        if isinstance(grid, str) and _NAME.fullmatch(grid) and not Path(grid).exists():
            return Locations(grid, None)
        path = Path(grid) if grid else default_grid_file()
        return Locations(_name_in(path), path.absolute())

    @property
    def state(self) -> Path:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(base) / "koala" / self.grid

    @property
    def socket(self) -> Path:
        """In $XDG_RUNTIME_DIR where there is one, else in the state directory."""
        base = os.environ.get("XDG_RUNTIME_DIR")
        return Path(base) / "koala" / f"{self.grid}.sock" if base else self.state / "koalad.sock"

    @property
    def log(self) -> Path:
        return self.state / "koalad.log"


def default_grid_file() -> Path:
    named = os.environ.get("KOALA_GRID")
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(named) if named else Path(config) / "koala" / "grid.yaml"


def _name_in(path: Path) -> str:
    """The grid's name, without reading the rest: koalad itself judges the file."""
    try:
        text = path.read_bytes()[: 10 << 20].decode(errors="replace")
    except FileNotFoundError as error:
        advice = "Write one (docs/grid-file.md), or name it with --grid or $KOALA_GRID."
        raise RequestError("no_grid_file", f"There is no grid file {path}.", advice) from error
    except OSError as error:
        raise RequestError("unreadable", f"{path} cannot be read: {error.strerror}.", "") from error
    found = _GRID_LINE.search(text)
    if not found:
        raise RequestError("no_grid_name", f"{path} names no grid.", "Begin it with a line like `grid: mine`.")
    return found[1]
