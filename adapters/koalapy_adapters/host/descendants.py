"""Find and end every process below this one, also those that forked twice and began a session of their own.

A process that is a child subreaper (prctl(2), Linux 3.4) inherits the orphans among its descendants. All
processes that the program forked stay below it, and waitpid(2) shows when none is left.
"""

import os
import signal
from typing import Collection, List, Optional, Tuple

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_STAT_PARENT, _STAT_START = 1, 19  # fields of /proc/PID/stat after the name, from 0: ppid, starttime


def become_subreaper() -> bool:
    """Inherit orphaned descendants from now on. Returns False if this kernel or this Python cannot."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> bool:
    """Let the kernel send this signal to this process when the parent dies."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def descendants(pid: int) -> List[int]:
    """Every process below this one, parents before children. Empty for a process that does not exist."""
    found: List[int] = []
    parents = [pid]
    while parents:
        children = _children(parents.pop())
        found += children
        parents += children
    return found


def send(pids: Collection[int], number: int) -> None:
    """Send a signal to each of these that still lives."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            pass  # a set-uid program, which this user cannot end


def reap() -> List[Tuple[int, int]]:
    """(pid, status) of every child that has ended since the last call."""
    ended: List[Tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def sweep(spared: Collection[int] = ()) -> bool:
    """Kill every child but the spared ones, with all below it. True once none is left; call it again until then.

    Ended children must be reaped between calls (`reap`).
    """
    children = [pid for pid in _children(os.getpid()) if pid not in spared]
    for child in children:
        send([child, *descendants(child)], signal.SIGKILL)
    return not children


def start_of(pid: int) -> Optional[int]:
    """When this process started, in ticks since boot; with the pid it names one process. None if it does not live."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[_STAT_START])


def parent_of(pid: int) -> int:
    """The parent of this process; 0 if the process is not there."""
    fields = _stat(pid)
    return 0 if fields is None else int(fields[_STAT_PARENT])


def runs(pid: int, word: bytes) -> bool:
    """Return whether the word is one of the process's arguments."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return word in file.read().split(b"\0")
    except OSError:
        return False


def has_variable(pid: int, name: str) -> bool:
    """Return whether the process was started with this variable in its environment. False if that cannot be read."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return b"\0" + name.encode() + b"=" in b"\0" + file.read()
    except OSError:
        return False


def ignores(pid: int, number: int) -> bool:
    """Return whether the process ignores this signal (proc(5), SigIgn). False if that cannot be read."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            for line in file:
                if line.startswith(b"SigIgn:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


def is_stopped(pid: int) -> bool:
    """Return whether this process is stopped by a signal such as SIGSTOP."""
    fields = _stat(pid)
    return fields is not None and fields[0] == "T"


def _children(pid: int) -> List[int]:
    try:
        threads = os.listdir("/proc/%d/task" % pid)
        found: List[int] = []
        for thread in threads:
            with open("/proc/%d/task/%s/children" % (pid, thread)) as file:
                found += map(int, file.read().split())
        return found
    except (FileNotFoundError, ProcessLookupError):
        return _children_by_parent(pid) if not os.path.exists("/proc/self/task/%d/children" % os.getpid()) else []


def _children_by_parent(pid: int) -> List[int]:
    """The children of every process, for kernels without CONFIG_PROC_CHILDREN."""
    found = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else None
        if fields is not None and int(fields[_STAT_PARENT]) == pid:
            found.append(int(name))
    return found


def _stat(pid: int) -> Optional[List[str]]:
    """The fields after the name, which may itself hold blanks and parentheses."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().decode("ascii", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _prctl(option: int, argument: int) -> bool:
    try:
        import ctypes  # imported late: it is slow to import, and some Pythons were built without it
    except ImportError:
        return False
    return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), 0, 0, 0) == 0)
