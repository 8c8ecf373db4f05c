"""The view of an isolated program on its node, as a list of mounts. Nothing is mounted here."""

import os
import pwd
import stat
import sys
from typing import Callable, List, NamedTuple, Sequence

from koalapy_adapters.layout import own_shared

READ_ONLY, WRITABLE, LINK, HIDDEN, PROC, DEV = "read-only", "writable", "link", "hidden", "proc", "dev"

_SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys/devices/system")
_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")  # of the whole node, for root to change
DIRECTORY, FILE = "directory", "file"


class Mount(NamedTuple):
    """One thing at the path `target`. `source`: the path on the node, or the text of a link."""

    kind: str
    target: str
    source: str = ""


class Place(NamedTuple):
    """The paths of one attempt on one node, all absolute.

    `work`: its working directory. `private`: this node's private directory. `pushed`: the pushed file.
    """

    work: str
    private: str
    pushed: str
    visible: Sequence[str] = ()

    @property
    def temporary(self) -> str:
        """The directory that the program sees as /tmp."""
        return os.path.join(self.private, "tmp")

    @property
    def hosts(self) -> str:
        """KOALA_HOSTS inside."""
        return os.path.join(self.private, "hosts")


class Node(NamedTuple):
    """The node as `mounts` must know it.

    `look(path)`: a directory, a file, the text of a link after `->`, or "" for none. `real(path)`: without links.
    `python`: directories of this Python. `hidden`: the home directory and the like.
    """

    look: Callable[[str], str]
    real: Callable[[str], str]
    python: Sequence[str]
    hidden: Sequence[str]


def this_node() -> Node:
    """Return the node of this process, as its user sees it."""
    python = sorted({sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)})
    return Node(_look, os.path.realpath, [*python, sys.executable], [pwd.getpwuid(os.getuid()).pw_dir])


def mounts(place: Place, node: Node) -> List[Mount]:
    """Return what the program sees, a directory before what is mounted below it.

    Everything else does not exist for it. What is `visible` hides neither home directory nor koalapy's own again.
    """
    found = []
    for path in _SYSTEM:
        kind = node.look(path)
        if kind.startswith("->"):
            found.append(Mount(LINK, path, kind[2:]))
        elif kind:
            found.append(Mount(READ_ONLY, path, path))
    found += [Mount(READ_ONLY, path, path) for path in place.visible if node.look(path)]
    found += [Mount(HIDDEN, path) for path in (*node.hidden, own_shared(place.work)) if _seen_in(found, path)]
    for path in (*node.python, place.pushed, node.real("/etc/resolv.conf")):
        if node.look(path) and not _seen_in(found, path):
            found.append(Mount(READ_ONLY, path, path))
    found += [Mount(READ_ONLY, path, path) for path in _SETTINGS if node.look(path)]
    rendezvous = os.path.join(os.path.dirname(place.work), "rendezvous")
    for name in ("passwd", "group"):
        found.append(Mount(READ_ONLY, "/etc/" + name, os.path.join(place.private, name)))
    found += [
        Mount(PROC, "/proc"),
        Mount(DEV, "/dev"),
        Mount(WRITABLE, "/tmp", place.temporary),
        Mount(READ_ONLY, place.private, place.private),
        Mount(READ_ONLY, rendezvous, rendezvous),
        Mount(WRITABLE, place.work, place.work),
    ]
    unique = {each.target: each for each in found}
    return sorted(unique.values(), key=lambda each: (each.target.count("/"), each.target))


def shows(place: Place, node: Node, path: str) -> bool:
    """Return whether the program sees the file or directory that has this path on the node."""
    found = mounts(place, node)
    links = [each for each in found if each.kind == LINK and _is_below(path, each.target)]
    return _seen_in(found, node.real(path) if links else path)


def _seen_in(mounts: Sequence[Mount], path: str) -> bool:
    """Return whether the path is below a directory of the node that is mounted, at its own place."""
    above = [each for each in mounts if _is_below(path, each.target)]
    if not above:
        return False
    nearest = max(reversed(above), key=lambda each: each.target.count("/"))
    return nearest.kind in (READ_ONLY, WRITABLE) and nearest.target == nearest.source


def _look(path: str) -> str:
    try:
        if os.path.islink(path) and os.path.dirname(path) == "/":
            return "->" + os.readlink(path)
        return DIRECTORY if stat.S_ISDIR(os.stat(path).st_mode) else FILE
    except OSError:
        return ""


def _is_below(path: str, place: str) -> bool:
    """Return whether the path is this place, or in it."""
    return path == place or path.startswith(place.rstrip("/") + "/")
