"""The part `unshare`: a command in a view, by the system calls of Linux alone. It needs unprivileged user namespaces.

    unshare MOUNTS WORK COMMAND [ARGUMENT…]

MOUNTS is a JSON list of view.Mount. The process that is started waits for the command, and ends as it does.
"""

import ctypes
import json
import os
import re
import signal
import sys
import traceback
from typing import Any, List

from koalapy_adapters.host.descendants import die_with_parent
from koalapy_adapters.isolation import view

_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_NOEXEC, _NOATIME, _NODIRATIME = 8, 1024, 2048
_LOCKED = {b"nosuid": _NOSUID, b"nodev": _NODEV, b"noexec": _NOEXEC, b"noatime": _NOATIME, b"nodiratime": _NODIRATIME}
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # see proc_pid_mountinfo(5)
_DETACH = 2
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_SET_KEEPCAPS = 38, 24, 8
_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEV_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)
_BASE = "/tmp"  # where the new root is put together; nothing is written into the node's own
_CANNOT = 125


def main(argv: List[str]) -> int:
    """Run the command. Returns its exit status, 128 + N after signal N, or 125 if it cannot be isolated."""
    if len(argv) < 3:
        sys.stderr.write("usage: unshare MOUNTS WORK COMMAND [ARGUMENT…]\n")
        return 2
    mounts = [view.Mount(*each) for each in json.loads(argv[0])]
    try:
        parent = os.getppid()
        descriptors = list(map(int, os.listdir("/proc/self/fd")))  # before the child changes what both of them see
        _begin(parent)
        pid = os.fork()
        if pid == 0:
            _become_first(mounts, argv[1], argv[2:])
    except OSError as error:
        return _refuse(error)
    for descriptor in descriptors:
        if descriptor != 2:
            _close(descriptor)  # only the command holds the ends of its pipes
    _, status = os.waitpid(pid, 0)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _begin(parent: int) -> None:
    """Enter the new namespaces; process 1 of the new process namespace is the next child. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEW_USER | _NEW_NS | _NEW_IPC | _NEW_PID)
    except OSError as error:
        raise OSError(error.errno, "no user namespace can be made (%s)" % error.strerror) from error
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", "%d %d 1" % (user, user))
    _write("/proc/self/gid_map", "%d %d 1" % (group, group))
    _end_with(parent)


def _become_first(mounts: List[view.Mount], work: str, command: List[str]) -> None:
    """In the child: see the view only, and become the command. Never returns."""
    try:
        die_with_parent(signal.SIGKILL)
        _new_root(mounts)
        os.chdir(work)
        os.setsid()
        _drop_privileges()
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        _refuse(error)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(_CANNOT)


def _new_root(mounts: List[view.Mount]) -> None:
    """Put the view together on a file system of its own, and leave the old root. Raises OSError."""
    _mount("none", "/", "", _REC | _PRIVATE)
    _mount("tmpfs", _BASE, "tmpfs", _NOSUID | _NODEV)
    for name in ("old", "new"):
        os.mkdir(os.path.join(_BASE, name), 0o755)
    real = [each._replace(source=os.path.realpath(each.source)) if _is_bound(each) else each for each in mounts]
    _call("pivot_root", _BASE.encode(), os.path.join(_BASE, "old").encode())
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", _NOSUID | _NODEV, "mode=755")
    for each in real:
        _MOUNTS[each.kind](each, "/new" + each.target)
    for path in ["", *[each.target for each in real if each.kind == view.HIDDEN]]:
        _mount("none", "/new" + path, "", _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    _call("umount2", b"/old", _DETACH)
    os.chdir("/new")
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def _is_bound(each: view.Mount) -> bool:
    return each.kind in (view.READ_ONLY, view.WRITABLE)


def _bind(each: view.Mount, target: str) -> None:
    source = "/old" + each.source
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        _touch(target)
    _mount(source, target, "", _BIND | _REC)
    if each.kind == view.READ_ONLY:
        _make_read_only(target)


def _make_read_only(target: str) -> None:
    """Make a mount read-only, with all below it. The flags that the kernel has locked stay."""
    with open("/old/proc/self/mountinfo", "rb") as file:
        lines = [line.split() for line in file]
    for fields in lines:
        path = os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match.group(1), 8)]), fields[4]))
        if path == target or path.startswith(target + "/"):
            flags = sum(_LOCKED.get(name, 0) for name in fields[5].split(b","))
            _mount("none", path, "", _REMOUNT | _BIND | _RDONLY | flags)


def _link(each: view.Mount, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.symlink(each.source, target)


def _hide(each: view.Mount, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    _mount("tmpfs", target, "tmpfs", _NOSUID | _NODEV, "mode=755")


def _proc(each: view.Mount, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    _mount("proc", target, "proc", _NOSUID | _NODEV | _NOEXEC)


def _dev(each: view.Mount, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    _mount("tmpfs", target, "tmpfs", _NOSUID, "mode=755")
    for name in _DEVICES:
        _touch(os.path.join(target, name))
        _mount("/old/dev/" + name, os.path.join(target, name), "", _BIND)
    for name, text in _DEV_LINKS:
        os.symlink(text, os.path.join(target, name))
    os.mkdir(os.path.join(target, "shm"), 0o755)
    os.mkdir(os.path.join(target, "pts"), 0o755)
    _mount("devpts", os.path.join(target, "pts"), "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")


_MOUNTS = {
    view.READ_ONLY: _bind,
    view.WRITABLE: _bind,
    view.LINK: _link,
    view.HIDDEN: _hide,
    view.PROC: _proc,
    view.DEV: _dev,
}


def _drop_privileges() -> None:
    """Give up every capability in the namespace for good, also those of a set-uid program. Raises OSError."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0)
    for number in range(_CAPABILITIES):
        try:
            _call("prctl", _PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)
        except OSError:
            break  # this kernel has no more
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends. Raises OSError if that has ended already."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        raise OSError(0, "the parent has ended")


def _touch(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2). Raises OSError."""
    try:
        _call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    except OSError as error:
        raise OSError(error.errno, "%s cannot be mounted (%s)" % (_named(target), error.strerror)) from error


def _named(target: str) -> str:
    return target[len("/new") :] or "/" if target.startswith("/new") else target


_LIBC: Any = ctypes.CDLL(None, use_errno=True)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203}


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the C library, or the system call pivot_root, which has none. Raises OSError."""
    if name == "pivot_root":
        done = _LIBC.syscall(ctypes.c_long(_PIVOT_ROOT[os.uname().machine]), *arguments)
    else:
        done = getattr(_LIBC, name)(*arguments)
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


def _refuse(error: OSError) -> int:
    os.write(2, ("koala isolation: %s\n" % (error.strerror or error)).encode("utf-8", "replace"))
    return _CANNOT
