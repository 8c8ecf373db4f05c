"""A copy of this tree as a repository of its own, with the Python that runs the tests as its `.venv/bin/python`."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NOT_TRACKED = (
    ".git",
    ".venv",
    "__pycache__",
    "*.egg-info",
    "dist",
    "build",
    ".*_cache",
    ".hypothesis",
    "node_modules",
)
_WHO = ("-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "commit.gpgsign=false")


def git(tree: Path, *arguments: str) -> str:
    """Run git in this tree and return its output. Raises CalledProcessError if it fails."""
    done = subprocess.run(["git", *_WHO, *arguments], cwd=tree, check=True, capture_output=True, text=True)
    return done.stdout


def commit(tree: Path, subject: str) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--no-verify", "--message", subject)


def copy_tree(where: Path) -> Path:
    """Copy this tree, uncommitted changes included, to a directory that does not exist, and commit it there."""
    shutil.copytree(ROOT, where, ignore=shutil.ignore_patterns(*_NOT_TRACKED), symlinks=True)
    git(where, "init", "--quiet", "--initial-branch=main")
    commit(where, "Add the tree")
    python = where / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return where
