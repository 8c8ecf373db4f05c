"""The cluster side by a tool that knows what each Python's standard library has: nothing of after 3.6.

`test_pack` sees to syntax, and runs a real 3.6 where there is one; this sees to modules, members and arguments.
"""

import subprocess
import sys
from pathlib import Path

import koalapy_adapters
import pytest

ADAPTERS = Path(koalapy_adapters.__file__).parent
NOT_PUSHED = ("connections", "contract")
ASKED_FOR_FIRST = ("asyncio.all_tasks", "asyncio.current_task")  # used where sys.version_info has them


def look(*files: str) -> "subprocess.CompletedProcess[str]":
    left_out = [argument for name in ASKED_FOR_FIRST for argument in ("--exclude", name)]
    argv = [
        sys.executable,
        "-c",
        "import vermin; vermin.main()",
        "-t=3.6-",
        "--no-tips",
        "--violations",
        *left_out,
        *files,
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_what_is_pushed_uses_nothing_newer_than_3_6() -> None:
    sources = [path for path in ADAPTERS.rglob("*.py") if path.relative_to(ADAPTERS).parts[0] not in NOT_PUSHED]
    assert len(sources) > 50
    found = look(*map(str, sources))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "source", ["import subprocess\nsubprocess.run([], capture_output=True)\n", "import dataclasses\n"]
)
def test_what_is_newer_is_found(tmp_path: Path, source: str) -> None:
    newer = tmp_path / "newer.py"
    newer.write_text(source)
    found = look(str(newer))
    assert found.returncode != 0
    assert "Minimum required versions: 3.7" in found.stdout
