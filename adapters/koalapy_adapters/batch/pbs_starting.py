"""The start of a command on other nodes of a PBS job, by whichever of PBS's own launchers is there."""

import os
import signal
from typing import Dict, List, Mapping, NamedTuple, Sequence

# Looked up there, whatever the arguments: PBS's daemon executes absolute paths only.
_ENV = "/usr/bin/env"


class Starter(NamedTuple):
    """A command that starts the command after it on these nodes. `end` is the option for the bridge's far end."""

    argv: List[str]
    hosts: List[str]
    end: str = "--end"  # what the bridge's far end receives of it


class NoLauncher(Exception):
    """Neither of PBS's launchers is there; the message names the directories that were searched."""


def starters(hosts: Sequence[str], environment: Mapping[str, str]) -> List[Starter]:
    """The commands that reach the hosts: a pbs_tmrsh for each node in OpenPBS, one pbsdsh for all nodes in Torque.

    In Torque, each command that connects to PBS's daemon takes over the connection of the one before. With -u, pbsdsh
    starts one process a node, also on our own. Raises NoLauncher if neither is there.
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
    """The launchers that were started. They print to our standard error, because our standard output is for the agents
    alone.
    """

    def __init__(self) -> None:
        self._hosts: Dict[int, List[str]] = {}

    def start(self, starter: Starter, command: List[str]) -> None:
        pid = os.fork()
        if pid == 0:
            _become([*starter.argv, *command])
        self._hosts[pid] = starter.hosts

    def ended(self) -> List[str]:
        """The nodes whose launcher has ended by now; each node is returned once."""
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
    """Execute the command in the child process. Never returns."""
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.execv(argv[0], argv)
    finally:
        os._exit(127)


def _directories(environment: Mapping[str, str]) -> List[str]:
    """The directories to search. The PATH of a job need not contain those of PBS."""
    directories = environment.get("PATH", "").split(":")
    if "PBS_EXEC" in environment:
        directories.append(environment["PBS_EXEC"] + "/bin")
    return [each for each in [*directories, "/opt/pbs/bin", "/usr/local/bin", "/usr/bin"] if each]


def _which(command: str, directories: List[str]) -> str:
    paths = [os.path.join(directory, command) for directory in directories]
    return next((path for path in paths if os.access(path, os.X_OK)), "")
