"""A borrower's program that tries to break out of its isolation, and prints what became of each attempt as JSON.

    hostile_program.py FACTS

FACTS is a JSON object about the lender:

- `secrets`: files to read; `directories`: to list; `writes`: directories to write in
- `pids`: processes outside; `batch`: commands of the batch system
- `profile`, which may be missing: the variables that every login there has

It does no harm where an attempt succeeds. It starts processes that try to outlive it. Standard library only: it runs on
the nodes of the test grid.
"""

import contextlib
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

OUTLIVES = "7412369"  # seconds of the `sleep` that tries to outlive the program
Facts = dict[str, Any]
_PTRACE_SEIZE = 0x4206
_NEW_NS, _NEW_USER, _REMOUNT_RW = 0x00020000, 0x10000000, 32 | 4096


def attempts(facts: Facts) -> list[tuple[str, Callable[[], Any]]]:
    """Return each attempt by its name. One that raises OSError, or returns "", was refused."""
    found: list[tuple[str, Callable[[], Any]]] = []
    for kind, key, attempt in (
        ("read", "secrets", _read),
        ("list", "directories", _foreign),
        ("write in", "writes", _write),
        ("see process", "pids", _see),
        ("signal process", "pids", _signal),
        ("read the environment of process", "pids", _environment),
        ("run", "batch", _run),
    ):
        found += [(f"{kind} {each}", functools.partial(attempt, each)) for each in facts[key]]
    return [
        *found,
        ("see other processes", _others),
        ("read the environment of process 1", lambda: _read("/proc/1/environ")),
        ("reach the root of process 1", lambda: os.listdir("/proc/1/root/")),
        ("open a descriptor of process 1", lambda: os.open("/proc/1/fd/2", os.O_RDONLY)),
        ("end process 1", _end_first),
        ("trace process 1", lambda: _ptrace(1)),
        ("leave by an open directory", _open_directories),
        ("find a capability", _capabilities),
        ("gain privileges by a set-uid program", _set_uid),
        ("make /usr writable", lambda: _libc("mount", b"none", b"/usr", None, _REMOUNT_RW, None)),
        ("mount in a namespace of its own", _mount_inside),
        ("change a setting of the kernel", lambda: _set_again("/proc/sys/vm/swappiness")),
        ("find koalapy's keys in the environment", lambda: _secrets_in_environment(facts.get("profile", ()))),
        ("load a kernel module", lambda: _libc("syscall", 175, b"", 0, b"")),
        ("enter the namespaces of another process", lambda: _enter(facts["pids"])),
    ]


def main() -> int:
    """Try everything, and start what is to outlive this program. Returns 0."""
    facts = json.loads(sys.argv[1])
    result = {}
    for name, attempt in attempts(facts):
        try:
            got = attempt()
        except (OSError, ValueError) as error:
            result[name] = ["refused", str(error)]
        else:
            result[name] = ["refused", "nothing"] if got in ("", [], None) else ["succeeded", str(got)[:200]]
    for path in facts["secrets"][:1]:
        os.symlink(path, "leak")
    for path in facts["directories"][:1]:
        os.symlink(path, "leaks")
    print(json.dumps(result), flush=True)
    if facts.get("outlives", True):
        _outlive()
    return 0


def _outlive() -> None:
    """Leave processes behind: forked twice, in a session of their own, deaf to signals."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
                null = os.open(os.devnull, os.O_RDWR)
                for target in range(3):
                    os.dup2(null, target)
                os.execvp("sleep", ["sleep", OUTLIVES])
            os._exit(0)
        os.wait()
    time.sleep(0.3)


def _foreign(path: str) -> list[str]:
    """Return what is in a directory, but for what leads to this program's own directory."""
    own = [os.getcwd(), os.environ["KOALA_SOCKET"], sys.argv[0], os.environ["KOALA_RENDEZVOUS"]]
    names = [os.path.join(path, name) for name in os.listdir(path)]
    return [name for name in names if not any(each.startswith(name) for each in own) and not name.endswith(".pyz")
            and not os.path.isdir(name)]  # fmt: skip


def _read(path: str) -> str:
    with open(path) as file:
        return file.read() or "empty"


def _see(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}")


def _environment(pid: int) -> str:
    return _read(f"/proc/{pid}/environ")


def _write(directory: str) -> str:
    path = os.path.join(directory, "hostile")
    with open(path, "w") as file:
        file.write("hostile")
    with contextlib.suppress(OSError):
        os.unlink(path)
    return path


def _set_again(path: str) -> str:
    """Write the value that the setting has."""
    with open(path) as file:
        value = file.read()
    with open(path, "w") as file:
        file.write(value)
    return path


def _signal(pid: int) -> str:
    os.kill(pid, signal.SIGCONT)
    return "signalled"


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    if done.returncode != 0:
        raise OSError(done.stdout.decode(errors="replace").strip()[:200])
    return done.stdout.decode(errors="replace") or "done"


def _others() -> list[str]:
    """Return the processes that are neither the first nor this one's."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{name}/cmdline") as file:
            command = file.read().replace("\0", " ")
        if name != "1" and "hostile_program" not in command:
            found.append(command)
    return found


def _end_first() -> str:
    os.kill(1, signal.SIGKILL)
    time.sleep(0.1)
    return ""  # it is still there, or this process would not be


def _ptrace(pid: int) -> str:
    _libc("ptrace", _PTRACE_SEIZE, pid, 0, 0)  # unlike PTRACE_ATTACH, it stops nothing
    return "attached"


def _open_directories() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.chdir("/proc/self/fd/" + name)
        except OSError:
            continue
        found.append(name)
    return found


def _capabilities() -> str:
    with open("/proc/self/status") as file:
        fields = dict(line.split(":\t") for line in file if line.startswith("Cap"))
    return " ".join(name for name, value in fields.items() if int(value, 16))


def _set_uid() -> str:
    for command in (["su", "-c", "id"], ["mount", "-t", "tmpfs", "none", "/usr"]):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode == 0 and (command[0] == "mount" or os.getuid() != 0):
            return " ".join(command)
    return ""


def _mount_inside() -> str:
    """In namespaces of its own a program may mount, but nothing of the lender's, and /usr stays read-only."""
    pid = os.fork()
    if pid == 0:
        try:
            _libc("unshare", _NEW_USER | _NEW_NS)
            _libc("mount", b"none", b"/usr", None, _REMOUNT_RW, None)
            open("/usr/hostile", "w").close()
            os._exit(0)
        except OSError:
            os._exit(1)
    return "written" if os.waitpid(pid, 0)[1] == 0 else ""


def _secrets_in_environment(profile: Sequence[str]) -> list[str]:
    words = ("TOKEN", "SECRET", "PASSWORD", "OUTER", "SSH_", "KRB5", "SLURM_", "SGE_", "PBS_", "MUNGE")
    return [name for name in os.environ if any(word in name for word in words) and name not in profile]


def _enter(pids: list[int]) -> str:
    for pid in pids:
        with open(f"/proc/{pid}/ns/mnt") as file:
            _libc("setns", file.fileno(), 0)
    return "entered" if pids else ""


def _libc(name: str, *arguments: Any) -> str:
    """Call a function of the C library. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    values = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    if getattr(library, name)(*values) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "done"


if __name__ == "__main__":
    sys.exit(main())
