"""Runs docker compose: builds the images, creates and removes the containers."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from koalapy.testgrid import layout
from koalapy.testgrid.layout import ContainersError

TAIL_LINES = 15
BUILD_TIMEOUT_S = 1800
UP_TIMEOUT_S = 300

Report = Callable[[str], None]


def build(environment: Mapping[str, str], report: Report) -> None:
    """Build the missing base images, then the images of the test grid. Raises ContainersError."""
    report("Looking for the base images…")
    for release in layout.DEBIANS:
        _run(["bash", str(layout.directory() / "base" / "make-base"), release], {}, BUILD_TIMEOUT_S, "base_failed")
    report("Building the images…")
    _compose(["build", *layout.images().values()], environment, BUILD_TIMEOUT_S, "build_failed")


def up(environment: Mapping[str, str]) -> None:
    """Create the missing or outdated containers, and start those that do not run. Raises ContainersError."""
    _compose(["up", "--detach", "--no-build", "--remove-orphans"], environment, UP_TIMEOUT_S, "up_failed")


def down(environment: Mapping[str, str]) -> None:
    """Remove containers, networks and volumes; the images stay. Raises ContainersError."""
    _compose(["down", "--volumes", "--remove-orphans"], environment, UP_TIMEOUT_S, "down_failed")


def environment(tag: str, prefixes: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that the compose file uses."""
    return {
        "KOALA_TESTGRID": layout.NAME,
        "KOALA_TESTGRID_TAG": tag,
        "KOALA_TESTGRID_CLUSTER": prefixes["cluster"],
        "KOALA_TESTGRID_ACCESS": prefixes["access"],
        "KOALA_TESTGRID_PBS_IMAGE": layout.PBS_IMAGE,
        "COMPOSE_PROFILES": ",".join(layout.PROFILES),
    }


def tag(directory: Path) -> str:
    """Return a tag for the images, which differs for each content of the build context."""
    digest = hashlib.sha256(layout.PBS_IMAGE.encode())
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(directory)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def command() -> list[str]:
    """Return `docker compose` (version 2) as an argument list, else `docker-compose` (version 1).

    Raises ContainersError if neither is installed.
    """
    if shutil.which("docker") and _succeeds(["docker", "compose", "version"]):
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise ContainersError(
        "no_compose",
        "Neither 'docker compose' nor 'docker-compose' is installed.",
        "Install one of them (Debian's package is docker-compose).",
    )


def _compose(arguments: Sequence[str], environment: Mapping[str, str], timeout_s: int, code: str) -> None:
    compose_file = str(layout.directory() / "compose.yml")
    argv = [*command(), "--project-name", layout.PROJECT, "--file", compose_file, *arguments]
    _run(argv, environment, timeout_s, code)


def _run(argv: Sequence[str], environment: Mapping[str, str], timeout_s: int, code: str) -> None:
    shown = " ".join(argv)
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ContainersError(
            code, f"'{shown}' did not end within {timeout_s} s.", "Is the engine busy? Try again."
        ) from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.decode(errors="replace").splitlines()[-TAIL_LINES:])
        raise ContainersError(code, f"'{shown}' ended with {done.returncode}.", f"Its last lines were:\n{tail}")


def _succeeds(argv: Sequence[str]) -> bool:
    return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0
