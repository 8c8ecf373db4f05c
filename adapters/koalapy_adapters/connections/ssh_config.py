"""Settings of OpenSSH's configuration for a host: those that `ssh -G` prints; without OpenSSH, read by paramiko.

The keywords are those of ssh_config(5). Values that a caller gives (user, port) precede those of the files, as on ssh's
command line.
"""

import getpass
import hashlib
import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import paramiko
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

from koalapy_adapters.errors import ClusterError

DEFAULT_PORT = 22
NO_FILE = "none"  # as for ssh -F
_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")
_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEMS_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_IDENTITIES = tuple(f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk"))
_METHODS = "publickey,keyboard-interactive,password"
_TIMEOUT_S = 15.0  # for `ssh -G`: a `Match exec` may run anything
_MANY = ("identityfile", "certificatefile")


class _One(Protocol):
    """Returns a key's one value, or the default."""

    def __call__(self, key: str, default: str = "") -> str: ...


Words = Mapping[str, Sequence[str]]  # by lower-case key; one value but for those that may be repeated


class Resolved(NamedTuple):
    """Settings by which a host is reached and logged in to. Paths are absolute; files need not exist."""

    host: str
    user: str
    port: int = DEFAULT_PORT
    alias: str | None = None  # the name that known_hosts has, HostKeyAlias
    family: str = "any"  # AddressFamily
    identities: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str | None = None  # the agent's socket
    known_hosts: tuple[str, ...] = ()
    jumps: tuple[str, ...] = ()  # ProxyJump: [user@]host[:port], the first one first
    proxy_command: str | None = None  # for /bin/sh
    timeout_s: float | None = None
    methods: tuple[str, ...] = ()  # of authentication, the best one first


def resolve(host: str, user: str | None = None, port: int | None = None, file: str | None = None) -> Resolved:
    """Return the settings of a host. Blocks. Raises ClusterError if the configuration cannot be read.

    `file` replaces the user's and the system's files, as `ssh -F`; `none`: no file.
    """
    openssh = shutil.which("ssh")
    words = _ask(openssh, host, user, port, file) if openssh else _read(host, user, port, file)
    return _resolved(host, words)


def split_jump(jump: str) -> tuple[str, str | None, int | None]:
    """Return host, user and port of one entry of ProxyJump, or of ssh://user@host:port.

    Raises ClusterError if it names no host.
    """
    user, _, place = jump.removeprefix("ssh://").rstrip("/").rpartition("@")
    match = re.fullmatch(r"\[(?P<in>[^]]+)\](?::(?P<inport>\d+))?|(?P<host>[^:]+)(?::(?P<port>\d+))?|(?P<v6>.+)", place)
    if match is None:
        raise ClusterError(
            "bad_ssh_config", f"ProxyJump names no host: {jump}.", "Correct it in the ssh configuration."
        )
    port = match["inport"] or match["port"]
    return match["in"] or match["host"] or match["v6"], user or None, int(port) if port else None


# ---- OpenSSH's own word


def _ask(openssh: str, host: str, user: str | None, port: int | None, file: str | None) -> Words:
    argv = [openssh, "-G", *_option("-F", file), *_option("-l", user), *_option("-p", port), "--", host]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        what = f"`{' '.join(argv)}` did not end within {_TIMEOUT_S:.0f} s."
        raise ClusterError("bad_ssh_config", what, "Does a `Match exec` of the ssh configuration hang?") from error
    if done.returncode:
        raise _unreadable(host, done.stderr.decode(errors="replace"))
    found: dict[str, list[str]] = {}
    for line in done.stdout.decode(errors="surrogateescape").splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, os.path.expanduser(str(value))]


# ---- without OpenSSH


def _read(host: str, user: str | None, port: int | None, file: str | None) -> Words:
    """Read the configuration by paramiko, which knows Host and Match, but not Include. Raises ClusterError."""
    config = paramiko.SSHConfig()
    for name in _FILES if file is None else () if file == NO_FILE else (file,):
        try:
            with open(os.path.expanduser(name)) as lines:
                config.parse(lines)
        except FileNotFoundError as error:
            if file is not None:
                raise _unreadable(host, f"there is no file {name}") from error
        except (OSError, UnicodeDecodeError, ConfigParseError) as error:
            raise _unreadable(host, str(error)) from error
    try:
        found = config.lookup(host)
    except (ConfigParseError, CouldNotCanonicalize, ImportError) as error:  # Match exec needs a package of its own
        raise _unreadable(host, str(error)) from error
    words = {key: list(value) if isinstance(value, list) else [str(value)] for key, value in found.items()}
    given = {"user": user, "port": port}
    return words | {key: [str(value)] for key, value in given.items() if value is not None}


def _unreadable(host: str, words: str) -> ClusterError:
    last = (words.strip().splitlines() or ["it prints nothing"])[-1].rstrip(".")
    message = f"The ssh configuration for {host} cannot be read: {last}."
    return ClusterError("bad_ssh_config", message, f"Correct it until `ssh -G {host}` succeeds.")


# ---- from words to values


def _resolved(asked: str, words: Words) -> Resolved:
    def one(key: str, default: str = "") -> str:
        value = (words.get(key) or [default])[0].strip()
        return default if value.lower() == "none" else value

    host, user, port = one("hostname", asked), one("user") or getpass.getuser(), int(one("port") or DEFAULT_PORT)
    jumps = tuple(each.strip() for each in one("proxyjump").split(",") if each.strip())
    tokens = _tokens(asked, host, user, port, ",".join(jumps))
    options = {"identityfile": _IDENTITIES} | dict(words)
    many = {key: tuple(_path(each, tokens) for each in options.get(key, ()) if each.lower() != "none") for key in _MANY}
    files = f"{one('userknownhostsfile', _KNOWN_HOSTS)} {one('globalknownhostsfile', _SYSTEMS_KNOWN_HOSTS)}".split()
    timeout = one("connecttimeout")
    command = one("proxycommand")
    return Resolved(
        host=host,
        user=user,
        port=port,
        alias=one("hostkeyalias") or None,
        family=one("addressfamily", "any"),
        identities=many["identityfile"],
        certificates=many["certificatefile"],
        identities_only=one("identitiesonly") == "yes",
        agent=_agent((words.get("identityagent") or ["SSH_AUTH_SOCK"])[0], tokens),
        known_hosts=tuple(_path(each, tokens) for each in files),
        jumps=jumps,
        proxy_command=_expanded(command, tokens) if command and not jumps else None,
        timeout_s=float(timeout) if timeout.isdecimal() and int(timeout) else None,
        methods=_methods(one),
    )


def _methods(one: _One) -> tuple[str, ...]:
    """Authentication methods that are wanted, supported and not switched off, the best one first."""
    switches = {"publickey": "pubkeyauthentication", "password": "passwordauthentication"}
    switches["keyboard-interactive"] = "kbdinteractiveauthentication"
    wanted = one("preferredauthentications", _METHODS).split(",")
    silent = one("batchmode") == "yes"
    return tuple(
        each
        for each in wanted
        if each in switches and one(switches[each], "yes") != "no" and (each == "publickey" or not silent)
    )


def _agent(options: str, tokens: Mapping[str, str]) -> str | None:
    """Path of the agent's socket; None for no agent. `options`: a path, SSH_AUTH_SOCK, $NAME, or none."""
    if options == "none":
        return None
    if options == "SSH_AUTH_SOCK" or options.startswith("$"):
        return os.environ.get(options.lstrip("$").strip("{}")) or None
    return _path(options, tokens)


def _path(text: str, tokens: Mapping[str, str]) -> str:
    named = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), text.strip().strip('"'))
    return os.path.expanduser(_expanded(named, tokens))


def _expanded(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _tokens(asked: str, host: str, user: str, port: int, jumps: str) -> dict[str, str]:
    """Values of the tokens of ssh_config(5), TOKENS, by letter."""
    local = socket.gethostname()
    digest = hashlib.sha1(f"{local}{host}{port}{user}{jumps}".encode()).hexdigest()
    return {
        "%": "%", "h": host, "n": asked, "p": str(port), "r": user, "u": getpass.getuser(), "i": str(os.getuid()),
        "d": _home(), "l": local, "L": local.partition(".")[0], "j": jumps, "C": digest, "k": host,
    }  # fmt: skip


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return os.path.expanduser("~")
