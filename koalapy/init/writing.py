"""Writes a grid file, with the survey's results as comments above each cluster."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from koalapy.init.choosing import Entry
from koalapy.model.errors import OurError

_HEAD = """\
# A grid file, written by `koala init`. All keys: docs/grid-file.md, `koala config schema`.
# See whether all works with `koala doctor`.
"""


def text(grid: str, entries: Sequence[Entry], missing: Sequence[tuple[str, dict[str, str], str]]) -> str:
    """Return the text of the grid file.

    `missing`: name, known keys and error of each cluster that could not be examined.
    """
    lines = [_HEAD.rstrip("\n"), f"grid: {_scalar(grid)}", "", "clusters:"]
    for entry in _apart(entries):
        lines += [f"  # {_line(comment)}" for comment in entry.comments]
        lines.append(f"  {_scalar(entry.name)}:")
        lines += [f"    {key}: {_scalar(value)}" for key, value in entry.settings.items()]
        lines.append("")
    for name, settings, why in missing:
        lines.append(f"  # {_scalar(name)} could not be looked at: {_line(why)}")
        lines.append("  # Correct this, and remove “# ” from each line below:")
        lines.append(f"  # {_scalar(name)}:")
        lines.append("  #   batch: slurm   # or sge, pbs, torque, local")
        lines += [f"  #   {key}: {_scalar(value)}" for key, value in settings.items()]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def write(path: Path, content: str) -> None:
    """Write the file whole or not at all, readable by its owner alone. Raises OurError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}."
        raise OurError("cannot_write", message, "Name another file with --grid.") from error


def _apart(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries. Clusters of one head node get a shared directory each."""
    seen: set[object] = set()
    apart = []
    for entry in entries:
        settings = dict(entry.settings)
        if settings["connect"] in seen:
            settings["shared"] = f"~/.koala/{entry.name}"
        seen.add(settings["connect"])
        apart.append(Entry(entry.name, settings, entry.comments))
    return apart


def _scalar(value: str | int) -> str:
    """Return the value as YAML on one line."""
    return yaml.safe_dump(value, width=1 << 20, allow_unicode=True).splitlines()[0]


def _line(comment: str) -> str:
    return " ".join(comment.split())
