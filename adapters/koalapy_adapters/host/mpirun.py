"""The implementations of MPI on a host, by the output of its mpirun."""

import os
import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional

from koalapy_adapters.host.spawn import decoded, encoded

OPENMPI, MPICH = "openmpi", "mpich"

# What a module brings is called mpirun. The other names distinguish two flavours on one host, as in Debian.
_COMMANDS = ("mpirun", "mpiexec", "mpirun.openmpi", "orterun", "mpiexec.hydra", "mpirun.mpich")
_FLAVOURS = ((OPENMPI, re.compile(r"Open MPI|OpenRTE")), (MPICH, re.compile(r"HYDRA build details")))
_PATIENCE_S = 20.0  # with an mpirun on a slow network file system


class Mpirun(NamedTuple):
    """An mpirun: its flavour, and the absolute path of the command."""

    flavour: str
    path: str


def installed(environment: Mapping[str, str]) -> Iterator[Mpirun]:
    """Yield the mpiruns on the environment's PATH in the order of their trial. Each is run for its version."""
    for path in _paths(environment):
        flavour = flavour_of(_version(path, environment))
        if flavour is not None:
            yield Mpirun(flavour, path)


def flavours(environment: Mapping[str, str]) -> List[str]:
    """Return the flavours on the environment's PATH, in the order of their names."""
    return sorted({mpirun.flavour for mpirun in installed(environment)})


def flavour_of(version: str) -> Optional[str]:
    """Return the flavour of the mpirun that printed this version; None for one that koalapy cannot use."""
    return next((flavour for flavour, pattern in _FLAVOURS if pattern.search(version)), None)


def _paths(environment: Mapping[str, str]) -> List[str]:
    """The commands that may be an mpirun, each as it is first on the PATH; one that has two names only once."""
    found: Dict[str, str] = {}
    for name in _COMMANDS:
        for place in environment.get("PATH", "/usr/bin:/bin").split(":"):
            path = os.path.join(place, name)
            if os.path.isabs(path) and os.path.isfile(encoded(path)) and os.access(encoded(path), os.X_OK):
                found.setdefault(decoded(os.path.realpath(encoded(path))), path)
                break
    return list(found.values())


def _version(path: str, environment: Mapping[str, str]) -> str:
    """The words of `--version`; empty if it cannot be run, or does not end."""
    import subprocess  # late: most hosts have no mpirun

    variables = {encoded(name): encoded(value) for name, value in environment.items()}
    try:
        ended = subprocess.run(
            [encoded(path), b"--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.decode("utf-8", "replace")
