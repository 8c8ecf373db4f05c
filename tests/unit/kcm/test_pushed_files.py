"""The file that attempts start: it is mended, and gets a copy with compiled modules that starts the same program."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.shared_directory.pushed_files import (
    COMPILE_AFTER,
    COMPILE_AGAIN,
    VERIFIED_EVERY,
    KeptFile,
    PushedFiles,
    compiled_path,
    is_whole,
    write_compiled,
)

HASH = "0" * 64


@pytest.mark.parametrize("damage", [None, b"", b"rotten"], ids=["removed", "empty", "rotten"])
def test_the_pushed_file_is_mended_and_touched_once_a_day(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "pushed.pyz"
    path.write_bytes(b"whole")
    kept = KeptFile(str(path))
    kept.keep(0)
    os.utime(path, (0, 0))
    kept.keep(1)
    assert path.stat().st_mtime == 0
    path.unlink() if damage is None else path.write_bytes(damage)
    kept.keep(VERIFIED_EVERY)
    assert path.read_bytes() == b"whole"
    os.utime(path, (0, 0))
    kept.keep(2 * VERIFIED_EVERY)
    assert path.stat().st_mtime > 0


def test_a_pushed_file_that_is_missing_is_mended_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pushed.pyz"
    path.write_bytes(b"whole")
    kept = KeptFile(str(path))
    kept.keep(0)
    path.unlink()
    kept.keep(1)
    assert path.read_bytes() == b"whole"


# ---- the compiled copy


class FullDisk(Files):
    """A disk on which nothing more can be written, until `full` is false."""

    full = True

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().write(path, data, mode, lasting)


def archive(path: Path, **modules: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, source in modules.items():
            file.writestr(f"{name}.py", source)
    return path


def copy_of(pushed: Path) -> Path:
    path = compiled_path(str(pushed))
    assert path is not None
    return Path(path)


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(path), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def changed(path: Path, name: str, data: bytes) -> None:
    """Write the archive again with another content of one entry."""
    with zipfile.ZipFile(path) as before:
        parts = {each: before.read(each) for each in before.namelist()}
    with zipfile.ZipFile(path, "w") as after:
        for each, content in (parts | {name: data}).items():
            after.writestr(each, content)


def test_the_copy_is_made_after_a_minute_and_used_at_once_by_the_next_kcm(tmp_path: Path) -> None:
    pushed = archive(tmp_path / f"{HASH}.pyz", __main__="print('started')")
    files = PushedFiles(str(pushed), now=0)
    files.keep(COMPILE_AFTER - 1)
    assert files.path == str(pushed)
    files.keep(COMPILE_AFTER)
    assert files.path == str(copy_of(pushed))
    assert run(copy_of(pushed)).stdout == "started\n"
    assert PushedFiles(str(pushed), now=0).path == str(copy_of(pushed))


def test_the_copy_starts_from_its_bytecode(tmp_path: Path) -> None:
    pushed = archive(tmp_path / f"{HASH}.pyz", __main__="import part", part="print('compiled')")
    write_compiled(str(pushed), str(copy_of(pushed)))
    changed(copy_of(pushed), "part.py", b"print('source')")
    assert run(copy_of(pushed)).stdout == "compiled\n"


def test_another_version_of_python_takes_the_sources(tmp_path: Path) -> None:
    pushed = archive(tmp_path / f"{HASH}.pyz", __main__="import part", part="print('compiled')")
    write_compiled(str(pushed), str(copy_of(pushed)))
    with zipfile.ZipFile(copy_of(pushed)) as file:
        bytecode = file.read("part.pyc")
    changed(copy_of(pushed), "part.py", b"print('source')")
    changed(copy_of(pushed), "part.pyc", b"\0\0\r\n" + bytecode[4:])
    assert run(copy_of(pushed)).stdout == "source\n"


def test_the_whole_cluster_side_can_be_compiled_and_started(tmp_path: Path) -> None:
    pushed = tmp_path / f"{packed().digest}.pyz"
    pushed.write_bytes(packed().data)
    write_compiled(str(pushed), str(copy_of(pushed)))
    with zipfile.ZipFile(copy_of(pushed)) as file:
        names = set(file.namelist())
    assert {name + "c" for name in names if name.endswith(".py")} == {name for name in names if name.endswith(".pyc")}
    for arguments in (["remote-start"], ["rendezvous", "no such question"], ["no such part"]):
        plain, compiled = run(pushed, *arguments), run(copy_of(pushed), *arguments)
        assert plain.returncode != 0
        assert plain.stderr
        assert (compiled.returncode, compiled.stdout, compiled.stderr) == (
            plain.returncode,
            plain.stdout,
            plain.stderr,
        )


def test_a_module_for_a_newer_python_stays_a_source(tmp_path: Path) -> None:
    pushed = archive(tmp_path / f"{HASH}.pyz", __main__="print('started')", newer="a future syntax")
    write_compiled(str(pushed), str(copy_of(pushed)))
    with zipfile.ZipFile(copy_of(pushed)) as file:
        assert set(file.namelist()) == {"__main__.py", "__main__.pyc", "newer.py"}


@pytest.mark.parametrize("damage", ["short", "changed", "missing"])
def test_a_damaged_copy_is_not_used(tmp_path: Path, damage: str) -> None:
    pushed = archive(tmp_path / f"{HASH}.pyz", __main__="print('started')")
    copy = copy_of(pushed)
    write_compiled(str(pushed), str(copy))
    assert is_whole(str(copy))
    data = copy.read_bytes()
    if damage == "missing":
        copy.unlink()
    else:
        copy.write_bytes(data[:-20] if damage == "short" else data.replace(b"started", b"stopped", 1))
    assert not is_whole(str(copy))
    assert PushedFiles(str(pushed), now=0).path == str(pushed)


def test_where_the_copy_cannot_be_written_the_pushed_file_is_started_and_it_is_tried_again(tmp_path: Path) -> None:
    pushed = archive(tmp_path / f"{HASH}.pyz", __main__="print('started')")
    disk = FullDisk()
    files = PushedFiles(str(pushed), now=0, files=disk)
    files.keep(COMPILE_AFTER)
    assert files.path == str(pushed)
    assert os.listdir(tmp_path) == [pushed.name]
    disk.full = False
    files.keep(COMPILE_AFTER + COMPILE_AGAIN - 1)
    assert files.path == str(pushed)
    files.keep(COMPILE_AFTER + COMPILE_AGAIN)
    assert files.path == str(copy_of(pushed))


def test_a_copy_that_is_removed_is_written_again(tmp_path: Path) -> None:
    pushed = archive(tmp_path / f"{HASH}.pyz", __main__="print('started')")
    files = PushedFiles(str(pushed), now=0)
    files.keep(COMPILE_AFTER)
    copy_of(pushed).unlink()
    files.keep(COMPILE_AFTER + 1)
    assert run(copy_of(pushed)).stdout == "started\n"
