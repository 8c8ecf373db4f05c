"""Find other users who could replace the file at a path, as sshd's StrictModes does: each directory on the way counts.

Both sides use it: koalad for its own directories, and the loader for `shared`. The landing program runs this
source on the head node.
"""

import errno
import grp
import os
import pwd
import shlex
import stat
import struct
from typing import List, NamedTuple, Optional

_LINKS = 40  # as many as Linux follows in one path
_ACL = "system.posix_acl_access"
_ACL_ENTRY = struct.Struct("<HHI")  # tag, permissions, id; after a version of 4 bytes (linux/posix_acl_xattr.h)
_ACL_USER, _ACL_GROUP, _ACL_WRITE = 0x02, 0x08, 0x02


class Refusal(NamedTuple):
    """Why a path is refused. `component`: the directory, file or link of the path that another user may change."""

    component: str
    message: str
    advice: str


class Host:
    """The file system and the users as this process sees them, in one class, so that a test can replace them."""

    def uid(self) -> int:
        return os.getuid()

    def lstat(self, path: str) -> os.stat_result:
        """Status of the path itself, not of a link's target. Raises OSError."""
        return os.lstat(path)

    def readlink(self, path: str) -> str:
        """Target of a symbolic link. Raises OSError."""
        return os.readlink(path)

    def acl(self, path: str) -> bytes:
        """The POSIX access ACL as the kernel gives it; b"" if there is none beyond the mode."""
        try:
            return os.getxattr(path, _ACL)
        except OSError:
            return b""

    def user(self, uid: int) -> str:
        """Name of a user, or the number of an unknown user."""
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def group(self, gid: int) -> str:
        """Name of a group, or the number of an unknown group."""
        try:
            return grp.getgrgid(gid).gr_name
        except KeyError:
            return str(gid)

    def primary_group(self, uid: int) -> Optional[int]:
        try:
            return pwd.getpwuid(uid).pw_gid
        except KeyError:
            return None

    def members(self, gid: int) -> List[str]:
        """Names of all known members of a group. Reads the whole user database."""
        try:
            named = list(grp.getgrgid(gid).gr_mem)
        except KeyError:
            named = []
        return named + [each.pw_name for each in pwd.getpwall() if each.pw_gid == gid]


HERE = Host()


def refusal(path: str, host: Host = HERE) -> Optional[Refusal]:
    """Return a Refusal if another user may change an absolute path, as far as it exists; else None.

    Each component, "/" and the targets of symbolic links included, must belong to root or the user. Nobody else may
    write to it, except to a sticky directory on the way: there nobody can move what another user owns. The last
    component must not be sticky and open, because others could put files into it.

    Raises OSError if a component cannot be looked at.
    """
    at, rest, links = "/", _parts(path), 0
    found = _wrong(at, host.lstat(at), bool(rest), host)
    while found is None and rest:
        part = rest.pop()
        if part == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, part)
        try:
            status = host.lstat(here)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        found = _wrong(here, status, bool(rest), host)
        if not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = host.readlink(here)
        rest += _parts(target)
        at = "/" if target.startswith("/") else at
    return found


def _parts(path: str) -> List[str]:
    """Names in a path, in reverse order."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _wrong(path: str, status: os.stat_result, passed: bool, host: Host) -> Optional[Refusal]:
    """Return a Refusal if another user may change this component, else None. `passed`: more of the path follows."""
    if status.st_uid not in (0, host.uid()):
        return _foreign(path, status, host)
    sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
    if stat.S_ISLNK(status.st_mode) or (sticky and passed):
        return None
    if status.st_mode & stat.S_IWOTH:
        return _open(path, status, sticky, "Everybody", host)
    if not status.st_mode & stat.S_IWGRP:
        return None  # an ACL lets nobody else write either: its mask stands in the group's bits of the mode
    if not _is_trusted(status.st_gid, host):
        return _open(path, status, sticky, "Each member of the group %s" % host.group(status.st_gid), host)
    named = _named_in_acl(path, host)
    return _open(path, status, sticky, "By its access control list %s" % named, host) if named else None


def _is_trusted(gid: int, host: Host) -> bool:
    """Return whether the group is the private group of the user or of root, without another member.

    If the database does not list users (SSSD without `enumerate`), a private group is known by its name.
    """
    owners = [uid for uid in (host.uid(), 0) if host.primary_group(uid) == gid]
    if not owners:
        return False
    names, members = {host.user(uid) for uid in (host.uid(), 0)}, host.members(gid)
    if not set(members) <= names:
        return False
    return host.user(owners[0]) in members or host.group(gid) == host.user(owners[0])


def _named_in_acl(path: str, host: Host) -> str:
    """The first other user or group that an access control list lets write; "" if there is none."""
    data = host.acl(path)[4:]
    for start in range(0, len(data) - len(data) % _ACL_ENTRY.size, _ACL_ENTRY.size):
        tag, permissions, number = _ACL_ENTRY.unpack_from(data, start)
        if not permissions & _ACL_WRITE:
            continue
        if tag == _ACL_USER and number not in (0, host.uid()):
            return "the user %s" % host.user(number)
        if tag == _ACL_GROUP and not _is_trusted(number, host):
            return "the group %s" % host.group(number)
    return ""


def _foreign(path: str, status: os.stat_result, host: Host) -> Refusal:
    message = "%s, who could replace what is at or below it." % _described(path, status, host)
    order = "chown %s%s %s" % ("-h " if stat.S_ISLNK(status.st_mode) else "", host.user(host.uid()), shlex.quote(path))
    return Refusal(
        path, message, "Name a directory whose parents only root or you own, or let root enter `%s`." % order
    )


def _open(path: str, status: os.stat_result, sticky: bool, who: str, host: Host) -> Refusal:
    what = "put files into it" if sticky else "replace what is at or below it"
    message = "%s. %s can write there, and so could %s." % (_described(path, status, host), who, what)
    if sticky:
        return Refusal(path, message, "Name a directory of your own in it, such as %s." % os.path.join(path, "koala"))
    bits = ("g" if status.st_mode & stat.S_IWGRP else "") + ("o" if status.st_mode & stat.S_IWOTH else "")
    order = "chmod %s-w %s" % (bits, shlex.quote(path))
    whose = "Enter `%s`" if status.st_uid == host.uid() else "Let root enter `%s`"
    advice = whose + ", or name a directory of your own below parents that only root or you may write."
    return Refusal(path, message, advice % order)


def _described(path: str, status: os.stat_result, host: Host) -> str:
    owner, group, mode = host.user(status.st_uid), host.group(status.st_gid), stat.S_IMODE(status.st_mode)
    return "%s belongs to %s (group %s, mode %04o)" % (path, owner, group, mode)
