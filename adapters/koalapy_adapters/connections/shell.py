"""Quotes a command so that it runs under the login shell, whichever shell first reads it."""

import shlex

# A login shell has read its profile, so the batch system's commands are on its PATH. The C shells take -l alone only,
# and have read their start-up file when sshd started them; what the system's profile says is added by sh.
_LOGIN = 'case "${SHELL:-/bin/sh}" in *csh) exec /bin/sh -lc "$0";; *) exec "${SHELL:-/bin/sh}" -lc "$0";; esac'


def through_login_shell(command: str) -> str:
    """One line for any login shell (sh, bash, zsh, ksh, csh, fish): `command` runs in a fresh login shell.

    `command` is one line of sh without exclamation marks, which the C shell would take for its history.
    """
    return f"exec /bin/sh -c {shlex.quote(_LOGIN)} {shlex.quote(command)}"


def quote_path(path: str) -> str:
    """A path as one word of sh; a leading ~/ stays the login's home."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(path)
