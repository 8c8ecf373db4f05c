"""Pack the cluster side into the one file that is pushed; the same sources give the same bytes everywhere."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from koalapy_adapters.errors import ClusterError

GROUP = "koalapy.batch_systems"
_OURS = "koalapy_adapters"
_LEFT_OUT = ("connections", "contract", "__pycache__")  # the grid side's, the tests', the interpreter's
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can represent
_PERMISSIONS = 0o100644 << 16
_UNIX = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_MAIN = b"import sys\n\nfrom koalapy_adapters.__main__ import main\n\nsys.exit(main())\n"


class Packed(NamedTuple):
    """The pushed file and its name: the sha256 of its bytes, in hex."""

    digest: str
    data: bytes


@functools.cache
def packed() -> Packed:
    """Return the file that this installation pushes.

    Raises ClusterError if drmaa is not installed, or an installed batch system cannot be packed.
    """
    return pack({"__main__.py": _MAIN, **_adapters(), **_drmaa(), **_foreign_batch_systems()})


def pack(files: dict[str, bytes]) -> Packed:
    """Make a zip of these files. They are stored, not deflated: two versions of zlib do not write the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            entry.create_system, entry.external_attr = _UNIX, _PERMISSIONS
            archive.writestr(entry, files[name])
    data = buffer.getvalue()
    return Packed(hashlib.sha256(data).hexdigest(), data)


def _adapters() -> dict[str, bytes]:
    return dict(_sources(Path(__file__).parents[1], _OURS))


def _drmaa() -> dict[str, bytes]:
    """Sources of the pure-Python binding, found without importing it: its import loads a C library at once."""
    found = importlib.util.find_spec("drmaa")
    if found is None or not found.submodule_search_locations:
        raise ClusterError(
            "incomplete", "The package drmaa is not installed.", "Install koalapy with its dependencies."
        )
    return dict(_sources(Path(found.submodule_search_locations[0]), "drmaa"))


def _sources(root: Path, name: str) -> Iterator[tuple[str, bytes]]:
    for path in root.rglob("*.py"):
        inside = path.relative_to(root)
        if inside.parts[0] not in _LEFT_OUT and "__pycache__" not in inside.parts:
            yield f"{name}/{inside.as_posix()}", path.read_bytes()


def _foreign_batch_systems() -> dict[str, bytes]:
    """Sources of the batch systems that other packages register; each is one module."""
    entries = importlib.metadata.entry_points(group=GROUP)
    foreign = [entry for entry in entries if entry.module.partition(".")[0] != _OURS]
    own = {path.stem for path in (Path(__file__).parents[1] / "batch").glob("*.py")}
    files: dict[str, bytes] = {}
    for entry in foreign:
        place = f"{_OURS}/batch/{entry.name}.py"
        if not _NAME.fullmatch(entry.name) or entry.name in own or place in files:
            raise _cannot_travel(entry, "its name is taken, or is none for a module")
        files[place] = _module_source(entry)
    return files


def _module_source(entry: importlib.metadata.EntryPoint) -> bytes:
    try:
        found = importlib.util.find_spec(entry.module)
    except ImportError as error:
        raise _cannot_travel(entry, str(error)) from error
    if found is None or not found.origin or found.submodule_search_locations or not found.origin.endswith(".py"):
        raise _cannot_travel(entry, f"{entry.module} is not one module in Python source")
    return Path(found.origin).read_bytes()


def _cannot_travel(entry: importlib.metadata.EntryPoint, why: str) -> ClusterError:
    message = f"The batch system {entry.name} of {entry.module} cannot be packed: {why}."
    return ClusterError("batch_system_unpackable", message, "Mend or uninstall the package that registers it.")
