"""The batch system of docs/batch-systems.md, installed as a third party's and tested by the command on that page."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import programs
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "batch-systems.md"
TEST_TIMEOUT_S = 600


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Make a directory with the page's distribution, as pip would install it."""
    site = tmp_path / "site"
    info = site / "koala_tsp-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: koala-tsp\nVersion: 1.0\n")
    (name, module) = re.findall(r'^(tsp) = "(\w+)"$', block("toml"), re.MULTILINE)[0]
    (info / "entry_points.txt").write_text(f"[koalapy.batch_systems]\n{name} = {module}\n")
    (site / f"{module}.py").write_text(block("python"))
    return site


@pytest.fixture
def place() -> Iterator[Path]:
    """Make a short path, since it contains a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="kts", dir="/tmp") as root:
        yield Path(root)


@pytest.fixture
def environment(tmp_path: Path, installed: Path, place: Path) -> Iterator[dict[str, str]]:
    """Make the environment of a task spooler for this test only, with four slots."""
    programs.need("tsp")
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    made = {
        **os.environ,
        "PYTHONPATH": path,
        "TS_SOCKET": str(place / "ts"),
        "TS_SLOTS": "4",
        "TMPDIR": str(tmp_path),
    }
    yield made
    subprocess.run(["tsp", "-K"], env=made, check=True)


def suite(environment: dict[str, str], cwd: Path, *options: str) -> str:
    """Run the suite, which must pass. Returns its last line."""
    argv = [sys.executable, "-m", "pytest", "--pyargs", "koalapy_adapters.contract", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*argv, *options], env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_the_batch_system_of_the_page_keeps_the_contract(environment: dict[str, str], tmp_path: Path) -> None:
    """It keeps the contract live, and in the output that was recorded then."""
    recorded, here = tmp_path / "recorded", ["--batch", "tsp", "-m", "not slow"]
    live = ["--connect", "local:", "--set", f"shared={tmp_path / 'shared'}", "--refuses", "queue,account,processors"]
    said = suite(environment, tmp_path, *here, *live, "--record", str(recorded))
    assert int(re.findall(r"(\d+) passed", said)[0]) >= 25
    said = suite(environment, tmp_path, *here, "--recorded", str(recorded))
    assert int(re.findall(r"(\d+) passed", said)[0]) >= 25


def test_a_suite_without_a_batch_system_names_the_missing_option(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "--pyargs", "koalapy_adapters.contract", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "--batch NAME" in done.stdout + done.stderr
    assert done.returncode != 0
