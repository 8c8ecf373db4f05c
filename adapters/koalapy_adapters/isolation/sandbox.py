"""The sandbox of the programs of one attempt on one node: the view, the method, an environment without secrets."""

import grp
import os
import pwd
from typing import Dict, List, NamedTuple, Sequence

from koalapy_adapters.host.node_identity import ALLOCATION_JOB
from koalapy_adapters.isolation import start_command, view
from koalapy_adapters.isolation.options import Isolation

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_OF_ALLOCATION = "KOALA_ALLOCATION_"
_KEPT = (ALLOCATION_JOB, "KOALA_ALLOCATION_HOSTS")


class Sandbox(NamedTuple):
    """How the programs of one attempt are isolated on this node. `options.method` is one of METHODS."""

    options: Isolation
    place: view.Place
    own: List[str]  # starts the pushed file

    def argv(self, command: List[str]) -> List[str]:
        """Return the command that starts `command` in the attempt's working directory, isolated."""
        mounts = view.mounts(self.place, view.this_node())
        return start_command.argv(self.options.method, mounts, self.place.work, self.own, command)

    def write_hosts(self, text: str) -> None:
        """Write the file KOALA_HOSTS of the program. Raises OSError."""
        _write(self.place.hosts, text)

    def shows(self, path: str) -> bool:
        """Return whether an isolated program sees this file of the node."""
        return view.shows(self.place, view.this_node(), path)

    def variables(self) -> Dict[str, str]:
        """Return the environment from which its own is made: nothing of the lender's."""
        user = pwd.getpwuid(os.getuid())
        base = {"HOME": self.place.work, "TMPDIR": "/tmp", "PATH": PATH, "USER": user.pw_name}
        base.update((name, os.environ[name]) for name in ("LANG", "LC_ALL", "TZ") if name in os.environ)
        base.update(LOGNAME=user.pw_name, SHELL=user.pw_shell or "/bin/sh")
        return base

    def inside(self, environment: Dict[str, str]) -> Dict[str, str]:
        """Return the environment of the program, without what is about the allocation around it."""
        hidden = [name for name in environment if name.startswith(_OF_ALLOCATION) and name not in _KEPT]
        kept = {name: value for name, value in environment.items() if name not in hidden}
        return dict(kept, TMPDIR="/tmp", KOALA_HOSTS=self.place.hosts)


def build(options: Isolation, attempt: str, private: str, own: Sequence[str]) -> Sandbox:
    """Prepare the private directory for the isolation of an attempt. Raises OSError. `own`: starts the pushed file."""
    work = os.path.join(attempt, "work")
    place = view.Place(work, private, os.path.abspath(own[-1]), options.visible)
    os.makedirs(place.temporary, mode=0o700, exist_ok=True)
    _write_accounts(private, work)
    return Sandbox(options, place, list(own))


def _write_accounts(private: str, home: str) -> None:
    """Write the passwd(5) and group(5) that the program sees: its user and nobody else of the lender's."""
    user = pwd.getpwuid(os.getuid())
    try:
        group = grp.getgrgid(user.pw_gid).gr_name
    except KeyError:
        group = user.pw_name
    shell = user.pw_shell or "/bin/sh"
    lines = ["%s:x:%d:%d::%s:%s" % (user.pw_name, user.pw_uid, user.pw_gid, home, shell)]
    if user.pw_uid != 0:
        lines.append("root:x:0:0::/:/usr/sbin/nologin")
    _write(os.path.join(private, "passwd"), "\n".join([*lines, "nobody:x:65534:65534::/:/usr/sbin/nologin", ""]))
    _write(os.path.join(private, "group"), "%s:x:%d:\nnogroup:x:65534:\n" % (group, user.pw_gid))


def _write(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
