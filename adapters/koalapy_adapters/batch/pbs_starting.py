"""How a command is started on other nodes of a PBS job, by whichever of PBS's own launchers is there."""

import os
import signal
from typing import Dict, List, Mapping, NamedTuple, Sequence

# Looked up there, whatever the arguments: PBS's daemon executes absolute paths only.
_ENV = "/usr/bin/env"


class Starter(NamedTuple):
    """A command that starts what follows it on these nodes."""

    argv: List[str]
    hosts: List[str]
    end: str = "--end"  # what the bridge's far end is told of it


class NoLauncher(Exception):
    """Neither of PBS's launchers is there; says where it was looked for."""


def starters(hosts: Sequence[str], environment: Mapping[str, str]) -> List[Starter]:
    """OpenPBS: a pbs_tmrsh for each node. Torque: one pbsdsh for all, since there each command that speaks with PBS's
    daemon takes over the line of the one before; -u is one process a node, on our own one too.
    """
    directories = _directories(environment)
    tmrsh = _which("pbs_tmrsh", directories)
    if tmrsh:
        return [Starter([tmrsh, host, _ENV], [host]) for host in hosts]
    pbsdsh = _which("pbsdsh", directories)
    if not pbsdsh:
        raise NoLauncher("neither pbs_tmrsh nor pbsdsh is in %s." % ":".join(directories))
    return [Starter([pbsdsh, "-u", "--", _ENV], list(hosts), "--ends")]


class Launchers:
    """Those that were started. What they say goes where our errors go: our output is the agents' alone."""

    def __init__(self) -> None:
        self._hosts: Dict[int, List[str]] = {}

    def start(self, starter: Starter, command: List[str]) -> None:
        pid = os.fork()
        if pid == 0:
            _become([*starter.argv, *command])
        self._hosts[pid] = starter.hosts

    def ended(self) -> List[str]:
        """The nodes whose launcher has ended by now, each told once."""
        found: List[str] = []
        for pid in list(self._hosts):
            if os.waitpid(pid, os.WNOHANG)[0]:
                found += self._hosts.pop(pid)
        return found

    @property
    def running(self) -> bool:
        return bool(self._hosts)

    def kill(self) -> None:
        for pid in self._hosts:
            os.kill(pid, signal.SIGKILL)  # a child of ours, and not waited for yet
            os.waitpid(pid, 0)
        self._hosts.clear()


def _become(argv: List[str]) -> None:
    """In the child. Never returns."""
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.execv(argv[0], argv)
    finally:
        os._exit(127)


def _directories(environment: Mapping[str, str]) -> List[str]:
    """A job's PATH need not have them."""
    directories = environment.get("PATH", "").split(":")
    if "PBS_EXEC" in environment:
        directories.append(environment["PBS_EXEC"] + "/bin")
    return [each for each in [*directories, "/opt/pbs/bin", "/usr/local/bin", "/usr/bin"] if each]


def _which(command: str, directories: List[str]) -> str:
    paths = [os.path.join(directory, command) for directory in directories]
    return next((path for path in paths if os.access(path, os.X_OK)), "")
