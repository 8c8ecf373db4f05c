"""The command that starts another one in a view. It is pure: the same values give the same command.

All methods make new user, mount, process and IPC namespaces; the user stays the same (user_namespaces(7)). The command
is process 1 inside, which no process inside can end. With it the kernel ends all others (pid_namespaces(7)). It ends
with its parent, and nothing inside gains privileges.
"""

import json
from typing import Callable, Dict, List, Sequence

from koalapy_adapters.isolation import view
from koalapy_adapters.isolation.options import BWRAP, UNSHARE

Argv = List[str]


def argv(method: str, mounts: Sequence[view.Mount], work: str, own: Argv, command: Argv) -> Argv:
    """Return the command that starts `command` in the directory `work` of this view. `own` starts the pushed file."""
    return _METHODS[method](mounts, work, own, command)


def _bwrap(mounts: Sequence[view.Mount], work: str, own: Argv, command: Argv) -> Argv:
    """See bwrap(1), version 0.3.1 or later."""
    words = ["bwrap", "--unshare-user-try", "--unshare-ipc", "--unshare-pid", "--as-pid-1", "--die-with-parent"]
    words += ["--new-session", "--cap-drop", "ALL"]
    for each in mounts:
        words += _BWRAP[each.kind](each)
    for path in ["/", *[each.target for each in mounts if each.kind == view.HIDDEN]]:
        words += ["--remount-ro", path]
    return [*words, "--chdir", work, "--", *command]


def _unshare(mounts: Sequence[view.Mount], work: str, own: Argv, command: Argv) -> Argv:
    """See koalapy_adapters.isolation.unshare."""
    return [*own, "unshare", json.dumps([list(each) for each in mounts]), work, *command]


_BWRAP: Dict[str, Callable[[view.Mount], Argv]] = {
    view.READ_ONLY: lambda each: ["--ro-bind", each.source, each.target],
    view.WRITABLE: lambda each: ["--bind", each.source, each.target],
    view.LINK: lambda each: ["--symlink", each.source, each.target],
    view.HIDDEN: lambda each: ["--tmpfs", each.target],
    view.PROC: lambda each: ["--proc", each.target],
    view.DEV: lambda each: ["--dev", each.target],
}
_METHODS: Dict[str, Callable[[Sequence[view.Mount], str, Argv, Argv], Argv]] = {BWRAP: _bwrap, UNSHARE: _unshare}
