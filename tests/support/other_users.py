"""Other users of this machine, for tests that run as root: real uids, a place they all reach, their commands."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from koalapy_adapters.connections.command import CommandConnection

ALICE, MALLORY, PROJECT = 61_001, 61_002, 61_003  # two users of no name, and the group that both are in
PYTHON = "/usr/bin/python3"  # others may not reach the one that runs the tests


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root's that everybody may pass. Skips where nobody can become another user."""
    if os.getuid():
        pytest.skip("only root can become another user")
    if not shutil.which("setpriv") or not os.path.exists(PYTHON):
        pytest.skip(f"needs setpriv and {PYTHON}")
    made = Path(tempfile.mkdtemp(prefix="koala-users-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def argv_as(uid: int, *argv: str) -> list[str]:
    """A command in a user's name, as a member of the project's group."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={PROJECT}", *argv]


def run_as(uid: int, *argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv_as(uid, *argv), capture_output=True, text=True, check=False, cwd="/")


def connection_of(uid: int, home: Path) -> CommandConnection:
    """A login of the user's."""
    environment = ["env", "-i", f"HOME={home}", f"PATH={os.environ['PATH']}", "SHELL=/bin/sh"]
    return CommandConnection(argv_as(uid, *environment, "sh", "-c", 'cd /; exec sh -c "$0"'))


def owned(path: Path, uid: int, mode: int, group: int = PROJECT) -> Path:
    """A new directory with this owner and mode."""
    path.mkdir()
    os.chown(path, uid, group)
    path.chmod(mode)  # after chown, which clears the bits of set-group-ID
    return path
