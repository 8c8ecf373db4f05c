"""Prepares the program's directories and KOALA_RENDEZVOUS, and starts the login shell that makes its environment."""

import os
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

from koalapy_adapters import layout
from koalapy_adapters.isolation import options
from koalapy_adapters.wrapper.program.environment import Capture, kept_login

if TYPE_CHECKING:
    from koalapy_adapters.isolation.sandbox import Sandbox


class Workdir(NamedTuple):
    """The login shell at work, or the environment that it would make, or why there is neither.

    `sandbox`: set if the program is isolated.
    """

    capture: Optional[Capture]
    environment: Optional[Dict[str, str]]
    error: Optional[OSError]
    sandbox: Optional["Sandbox"] = None


def prepare(directory: str, component: Dict[str, Any], private: str) -> Workdir:
    """Make what the program expects in the attempt's directory, and start the login shell: it takes longest."""
    try:
        for name in ("work", "output"):
            os.makedirs(layout.inside(directory, name), mode=0o700, exist_ok=True)
        setup, work = component["program"]["setup"], layout.inside(directory, "work")
        _write_rendezvous(layout.inside(directory, "rendezvous"), component["command"])
        isolation = options.asked(os.environ)
        if isolation is not None:
            from koalapy_adapters.isolation import sandbox  # late: few programs are isolated

            built = sandbox.build(isolation, directory, private, component["command"])
            return Workdir(Capture(setup, work, private, built), None, None, built)
        environment = kept_login(setup, work)
        capture = Capture(setup, work, private) if environment is None else None
    except OSError as error:
        return Workdir(None, None, error)
    return Workdir(capture, environment, None)


def _write_rendezvous(path: str, command: List[str]) -> None:
    words = " ".join("'%s'" % word.replace("'", "'\\''") for word in command)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
    with os.fdopen(descriptor, "w") as file:
        file.write('#!/bin/sh\nexec %s rendezvous "$@"\n' % words)
