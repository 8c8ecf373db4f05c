"""Quote a command so that it runs under the login shell, whichever shell reads it first."""

import shlex
from collections.abc import Sequence

BY_SETUP = "KOALA_PYTHON_BY_SETUP"  # set where the KCM's Python was found by lines of `setup` only
# A login shell has read its profile, so the batch system's commands are on its PATH. The C shells take -l alone only,
# and have read their start-up file when sshd started them; what the system's profile sets is added by sh.
_LOGIN = 'case "${SHELL:-/bin/sh}" in %s) exec /bin/sh -lc "$0";; *) exec "${SHELL:-/bin/sh}" -lc "$0";; esac'
_ODD = ("*csh", "*csh|*fish")  # which take no -l beside -c, and which of them do not read sh's syntax


def through_login_shell(command: str, of_sh: bool = False) -> str:
    """Return one line for any login shell (sh, bash, zsh, ksh, csh, fish): `command` runs in a fresh login shell.

    `command` is one line of sh without exclamation marks, which the C shell would take for its history. `of_sh`: it is
    more than one plain command, so that fish would not read it.
    """
    return f"exec /bin/sh -c {shlex.quote(_LOGIN % _ODD[of_sh])} {shlex.quote(command)}"


def with_setup(python: str, setup: Sequence[str]) -> str:
    """Return a shell prefix that runs the lines of `setup` if the interpreter is not found without them, or is too old.

    The prefix is empty if there is no `setup`, or `python` is a path. The lines travel as octal numbers: any of them
    passes any shell, on one line.
    """
    if not setup or "/" in python:
        return ""
    text = "".join(f"\\{byte:03o}" for byte in "\n".join(setup).encode())
    look = f'{shlex.quote(python)} -c "import sys; sys.exit(sys.version_info < (3, 6))" >/dev/null 2>&1'
    return f"{look} || {{ eval \"$(printf '{text}')\" </dev/null >&2; export {BY_SETUP}=1; }}; "


def quote_path(path: str) -> str:
    """Quote a path as one word of sh; a leading ~/ stays the login's home."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(path)
