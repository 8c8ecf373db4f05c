"""The loader: how the pushed file is stored and started, under whatever login shell and Python there is."""

import hashlib
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import connection_ends as ends
import pytest
from koalapy_adapters.connections import bootstrap, loader
from koalapy_adapters.connections.bootstrap import Target
from koalapy_adapters.connections.command import CommandConnection
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.pack import Packed, pack
from koalapy_adapters.connections.shell import quote_path, through_login_shell
from koalapy_adapters.errors import ClusterError, TransientError
from programs import need

ECHO = ends.ECHO
STARTED = ends.STARTED
error_of = ends.error_of
ignore = ends.ignore
read_exactly = ends.read_exactly
started = ends.started
target = ends.target
SHELLS = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "tcsh", "csh"]
PYENV = Path(os.environ["PYENV_ROOT"], "versions")


# ---- the loader


@pytest.mark.parametrize("version", ["2.7.*", "3.6.*"])
def test_pythons_of_long_ago(tmp_path: Path, version: str) -> None:
    found = sorted(PYENV.glob(f"{version}/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} here")
    if version.startswith("2"):
        error = error_of(LocalConnection(), tmp_path, python=str(found[-1]))
        assert error.code == "python_too_old"
        assert "is Python 2.7" in error.message
    else:
        with started(LocalConnection(), tmp_path, python=str(found[-1])) as channel:
            assert read_exactly(channel, len(STARTED)) == STARTED


def test_the_loader_reads_as_python_2_would_read_it() -> None:
    """A Python that is too old can report it: no annotation, no f-string, nothing that came with 3."""
    source = Path(loader.__file__).read_text()
    assert " -> " not in source
    assert not [line for line in source.splitlines() if ' f"' in line or "(f'" in line or "nonlocal" in line]


@pytest.mark.parametrize("length", range(8))
def test_nothing_that_comes_at_once_after_the_last_answer_is_lost(length: int) -> None:
    """The bytes before may be of any length: a slow reader finds all of them at once."""
    connection = _AllAtOnce(b"." * length, b"the KCM's own words")
    with started(connection, Path("/unused")) as channel:
        assert read_exactly(channel, 19) == b"the KCM's own words"


class _AllAtOnce:
    """A host that has sent everything before anybody reads."""

    where, python = "the host", "python3"

    def __init__(self, banner: bytes, words: bytes) -> None:
        answers = ['{"answer": "ready", "version": "3.11.2"}', '{"answer": "need"}', '{"answer": "go"}']
        said = b"".join(f"\n{loader.MARKER} {answer}\n".encode() for answer in answers)
        self._left = banner + said + words

    def open(self, shell_command: str, stderr: Callable[[str], None]) -> "_AllAtOnce":
        return self

    def read(self, size: int) -> bytes:
        piece, self._left = self._left[:size], self._left[size:]
        return piece

    def write(self, data: bytes) -> None:
        pass

    def exit_status(self, timeout_s: float) -> int | None:
        return None

    def close(self) -> None:
        pass


def test_a_file_that_has_rotted_is_pushed_anew(tmp_path: Path) -> None:
    with started(LocalConnection(), tmp_path):
        pass
    pushed = tmp_path / "bin" / f"{ECHO.digest}.pyz"
    pushed.write_bytes(ECHO.data[:-1])
    with started(LocalConnection(), tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED
    assert pushed.read_bytes() == ECHO.data


def test_files_that_nobody_has_used_for_a_week_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    names = {name: directory / f"{hashlib.sha256(name.encode()).hexdigest()}.pyz" for name in ("old", "new", "queued")}
    for path in names.values():
        path.write_bytes(b"x")
    (directory / "of-somebody-else").write_bytes(b"x")
    long_ago = names["new"].stat().st_mtime - 8 * 86_400
    for path in (names["old"], names["queued"], directory / "of-somebody-else"):
        os.utime(path, (long_ago, long_ago))
    script = tmp_path / "abcde" / "k0" / "script"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\nexec python3 -I -S {names['queued']} wrapper\n")
    with started(LocalConnection(), tmp_path):
        pass
    left = {path.name for path in directory.iterdir()}
    assert left == {names["new"].name, names["queued"].name, f"{ECHO.digest}.pyz", "of-somebody-else"}


def test_a_file_in_use_is_used_now(tmp_path: Path) -> None:
    with started(LocalConnection(), tmp_path):
        pass
    pushed = tmp_path / "bin" / f"{ECHO.digest}.pyz"
    os.utime(pushed, (0, 0))
    with started(LocalConnection(), tmp_path):
        pass
    assert pushed.stat().st_mtime > 0


def test_a_full_file_system_is_reported(tmp_path: Path) -> None:
    """A real one of 16 KiB, which only this process tree sees."""
    mount = "mount -t tmpfs -o size=16k,mode=700 tmpfs " + str(tmp_path)
    argv = ["unshare", "-Urm", "sh", "-c", f'{mount} && exec sh -c "$0"']
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user name spaces here")
    large = pack({"__main__.py": b"#" * 65_536})
    with pytest.raises(ClusterError) as caught:
        bootstrap.start(CommandConnection(argv), large, target(tmp_path), ignore)
    assert caught.value.code == "directory_full"
    assert "has no room left" in caught.value.message


def test_what_is_run_lies_where_nobody_else_can_change_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin").chmod(0o777)
    with started(LocalConnection(), tmp_path):
        assert (tmp_path / "bin").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_everybody_may_write_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """A directory that koalapy did not make may be meant to be open; its owner is advised how to close it."""
    tmp_path.chmod(0o777)
    error = error_of(LocalConnection(), tmp_path)
    assert error.code == "shared_open_to_others"
    assert f"{tmp_path} belongs to " in error.message
    assert f"`chmod go-w {tmp_path}`" in error.advice
    assert tmp_path.stat().st_mode & 0o777 == 0o777
    assert not list(tmp_path.iterdir())


def test_what_is_made_is_for_its_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    argv = ["sh", "-c", 'umask 0; exec sh -c "$0"']
    with started(CommandConnection(argv), tmp_path / "koala" / "here"):
        made = [tmp_path / "koala", tmp_path / "koala" / "here", tmp_path / "koala" / "here" / "bin"]
        assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3


@pytest.mark.parametrize("whose", ["", "bin"])
def test_a_place_that_another_user_made_for_us_is_refused(tmp_path: Path, whose: str) -> None:
    """In a name space where the user is root and nobody else is known."""
    argv = ["unshare", "-Ur", "sh", "-c", 'exec sh -c "$0"']
    if os.getuid() or subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, and user name spaces")
    shared = tmp_path / "shared"
    (shared / "bin").mkdir(parents=True)
    made = shared / whose
    made.chmod(0o777)
    os.chown(made, 65_533, 65_533)
    with pytest.raises(ClusterError, match=f"{made} belongs to (nobody|65534) ") as caught:
        bootstrap.start(CommandConnection(argv), ECHO, target(shared), ignore)
    assert caught.value.code == "shared_open_to_others"


def test_what_arrives_damaged_is_not_kept(tmp_path: Path) -> None:
    lying = Packed("0" * 64, ECHO.data)
    with pytest.raises(TransientError) as caught:
        bootstrap.start(LocalConnection(), lying, target(tmp_path), ignore)
    assert caught.value.code == "garbled"
    assert not list((tmp_path / "bin").iterdir())


def test_the_default_directory_is_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    channel = bootstrap.start(LocalConnection(), ECHO, Target(), ignore)
    channel.close()
    assert (tmp_path / ".koala" / "bin" / f"{ECHO.digest}.pyz").exists()


def test_many_pushes_at_once_leave_one_file(tmp_path: Path) -> None:
    got: list[bytes] = []

    def push() -> None:
        with started(LocalConnection(), tmp_path) as channel:
            got.append(read_exactly(channel, len(STARTED)))

    pushes = [threading.Thread(target=push) for _ in range(4)]
    for each in pushes:
        each.start()
    for each in pushes:
        each.join()
    assert got == [STARTED] * 4
    assert len(list((tmp_path / "bin").iterdir())) == 1


# ---- login shells


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the login shell one that runs these lines first, each time."""

    def make(lines: str) -> None:
        path = tmp_path / "shell"
        path.write_text(f'#!/bin/sh\n{lines}\nexec /bin/sh "$@"\n')
        path.chmod(0o755)
        monkeypatch.setenv("SHELL", str(path))

    return make


def test_a_banner_is_skipped(tmp_path: Path, shell: Callable[[str], None]) -> None:
    shell("printf 'Welcome to the cluster.\\n%20000s' no-line-end")  # by two shells: 40 kB in all
    with started(LocalConnection(), tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_a_login_that_prints_without_end_is_refused(tmp_path: Path, shell: Callable[[str], None]) -> None:
    shell("[ $1 = -c ] || exec yes")
    error = error_of(LocalConnection(), tmp_path)
    assert isinstance(error, ClusterError)
    assert error.code == "noisy_login"


def test_a_start_up_file_that_ends_the_login(tmp_path: Path, shell: Callable[[str], None]) -> None:
    shell("echo 'Logins are closed today.' >&2; exit 3")
    error = error_of(LocalConnection(), tmp_path)
    assert isinstance(error, TransientError)
    assert error.code == "login_ended"
    assert "ended with 3: Logins are closed today." in error.message


def test_an_account_that_may_not_log_in(tmp_path: Path, shell: Callable[[str], None]) -> None:
    """nologin(8) reports it on standard output; on the other there may be other text, and no full stop."""
    shell("echo This account is currently not available.; echo Could not chdir to /nowhere >&2; exit 1")
    said = "ended with 1: Could not chdir to /nowhere; This account is currently not available."
    assert error_of(LocalConnection(), tmp_path).message.endswith(said)


@pytest.mark.parametrize("name", SHELLS)
def test_it_runs_under_a_login_shell(tmp_path: Path, name: str) -> None:
    """The profile's additions to the PATH are there, whichever shell reads the line first."""
    path = need(name)
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "sbatch"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    for profile in (".profile", ".zprofile"):
        (tmp_path / profile).write_text(f'PATH="{tmp_path}/tools:$PATH"\nexport PATH\n')
    fish = tmp_path / ".config" / "fish" / "config.fish"
    fish.parent.mkdir(parents=True)
    fish.write_text(f"set -x PATH {tmp_path}/tools $PATH\n")
    environment = {"HOME": str(tmp_path), "SHELL": path, "PATH": os.environ["PATH"]}
    done = subprocess.run([path, "-c", through_login_shell("exec sbatch")], env=environment, capture_output=True)
    assert (done.stdout, done.stderr) == (b"found\n", b"")


def test_a_python_may_lie_anywhere(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s a "dir" $HOME'
    odd.mkdir()
    python = odd / "python 3"
    python.symlink_to(sys.executable)
    with started(LocalConnection(), tmp_path / "a b'c", python=str(python)) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_a_leading_tilde_stays_the_home() -> None:
    assert quote_path("~/my python") == "\"$HOME\"/'my python'"
    assert quote_path("/a b") == "'/a b'"


def test_a_shell_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/no/shell")
    error = error_of(LocalConnection(), tmp_path)
    assert (error.code, error.whose) == ("no_shell", "cluster")
    assert "/no/shell" in error.message


def test_local_connections_use_our_own_python() -> None:
    assert LocalConnection().python == sys.executable


# ---- Python by `setup`


@pytest.mark.parametrize("name", SHELLS)
def test_a_python_that_only_setup_brings(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines may be of any kind and print or read anything, in any shell that reads them first."""
    shell_path = need(name)
    monkeypatch.setenv("SHELL", shell_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    odd = tmp_path / 'it\'s 100% a "dir" ! $HOME `x` ü'
    odd.mkdir()
    (odd / "the-python").symlink_to(sys.executable)
    quoted = shlex.quote(str(odd))
    setup = ["echo 'a module was loaded!'; cat", "where=\\", quoted, 'export PATH="$PATH:$where"']
    for _ in range(2):
        connection = CommandConnection([shell_path, "-c"])
        with started(connection, tmp_path / "k", python="the-python", setup=setup) as channel:
            assert read_exactly(channel, len(STARTED)) == STARTED
    error = error_of(CommandConnection([shell_path, "-c"]), tmp_path / "k", python="the-python", setup=["true"])
    assert error.code == "no_python"
    assert "`setup:`" in error.advice


def test_setup_is_left_alone_where_python_is_there(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with started(LocalConnection(), tmp_path / "k", python="python3", setup=[f"touch {flag}"]):
        pass
    with started(LocalConnection(), tmp_path / "k", python=sys.executable, setup=[f"touch {flag}"]):
        pass
    assert not flag.exists()
