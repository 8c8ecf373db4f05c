"""A shim for Python: what starts it on nodes where only lines of `setup` bring it, such as `module load python`."""

import hashlib
import os
import shlex
from typing import NamedTuple, Optional

from koalapy_adapters import layout
from koalapy_adapters.errors import ClusterError
from koalapy_adapters.messages import ClusterConfig

BY_SETUP = "KOALA_PYTHON_BY_SETUP"  # koalad's remote command sets it where the KCM's own Python was found so

# What profile and setup print must not get between a node agent and its wrapper, who talk over these streams.
_SCRIPT = """#!/bin/sh
# Starts Python for koalapy's own parts: with the grid file's `setup`, if it is not there without.
if ! {python} -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1; then
    exec 3>&1 >&2
    [ ! -r /etc/profile ] || . /etc/profile </dev/null
    {{
{setup}
    }} </dev/null
    exec >&3 3>&-
fi
exec {python} "$@"
"""


class PythonShim(NamedTuple):
    """An executable in the shared directory, named by its content."""

    path: str
    text: str


def wanted(config: ClusterConfig, shared: str) -> Optional[PythonShim]:
    """Return the shim that the cluster needs; None if Python is found without one."""
    if BY_SETUP not in os.environ or "/" in config.python:
        return None
    text = _SCRIPT.format(python=shlex.quote(config.python), setup="\n".join(config.setup))
    name = "python-" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return PythonShim(os.path.join(shared, "bin", name), text)


def write(shim: PythonShim) -> None:
    """Whole or not at all. Raises ClusterError where the shared directory cannot be used."""
    if os.path.exists(shim.path):
        return
    try:
        layout.write_whole(shim.path, shim.text.encode("utf-8", "surrogateescape"), 0o700)
    except OSError as error:
        message = "%s cannot be written: %s." % (shim.path, error.strerror)
        raise ClusterError("directory_not_writable", message, "Make room there, or name another directory.") from error
