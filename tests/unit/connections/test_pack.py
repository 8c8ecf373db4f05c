"""The pushed file: what is in it, that it is the same everywhere, and that it runs where nothing is installed."""

import ast
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import koalapy_adapters
import pytest
from koalapy_adapters import __main__ as pushed_main
from koalapy_adapters.connections.pack import Packed, pack, packed

ADAPTERS = Path(koalapy_adapters.__file__).parent
PYENV = sorted(Path(os.environ["PYENV_ROOT"]).glob("versions/3.6.*/bin/python3"))
OLDEST = Path(os.environ.get("KOALA_TEST_OLDEST", PYENV[-1] if PYENV else "none"))
ALLOWED = frozenset({"koalapy_adapters", "drmaa"})
# What Python 2 has and Python 3 has not; drmaa asks before it imports them.
ANCIENT = frozenset({"__builtin__"})


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pushed") / f"{packed().digest}.pyz"
    path.write_bytes(packed().data)
    return path


def sources(suffix: str = ".py") -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(packed().data)) as archive:
        for name in archive.namelist():
            if name.endswith(suffix):
                yield name, archive.read(name)


def test_it_holds_the_cluster_side_and_nothing_of_the_grid_side() -> None:
    names = {name for name, _ in sources("")}
    assert {"__main__.py", "drmaa/__init__.py", "koalapy_adapters/kcm/__init__.py"} <= names
    assert "koalapy_adapters/batch/slurm.py" in names
    assert "koalapy_adapters/wrapper/__init__.py" in names
    assert not [name for name in names if "connections" in name or "contract" in name or "__pycache__" in name]
    assert all(name.startswith(("__main__.py", "koalapy_adapters/", "drmaa/")) for name in names)


def test_it_is_named_by_its_content() -> None:
    assert packed().digest == hashlib.sha256(packed().data).hexdigest()
    assert pack({"a": b"1"}).digest != pack({"a": b"2"}).digest


def test_the_same_sources_elsewhere_make_the_same_bytes(tmp_path: Path) -> None:
    """As from a wheel: another directory, other times of change, other permissions, another order of names."""
    copied = tmp_path / "koalapy_adapters"
    for path in sorted(ADAPTERS.rglob("*.p[yl]"), reverse=True):
        target = copied / path.relative_to(ADAPTERS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o600)
    made = elsewhere(
        tmp_path, tmp_path, "from koalapy_adapters.connections import pack as p; print(p.__file__, p.packed().digest)"
    )
    assert made.split() == [str(copied / "connections" / "pack.py"), packed().digest]


def elsewhere(first: Path, cwd: Path, program: str) -> str:
    """Return the output of a fresh Python that looks into `first` before all else."""
    environment = {**os.environ, "PYTHONPATH": str(first), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_every_source_is_python_3_6_and_imports_the_standard_library_only() -> None:
    found = list(sources())
    assert found
    for name, source in found:
        tree = ast.parse(source, name, feature_version=(3, 6))
        assert imported(tree) <= sys.stdlib_module_names | ALLOWED | (
            ANCIENT if name.startswith("drmaa/") else set()
        ), name
        grid_side = [
            node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "connections" in str(node.module)
        ]
        assert not grid_side, name


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


@pytest.mark.parametrize("python", [Path(sys.executable), OLDEST], ids=["this", "oldest"])
def test_every_module_is_imported_with_nothing_installed(pushed: Path, python: Path) -> None:
    """All but drmaa itself, whose import loads a C library; and nothing of that loads it by the way."""
    if not python.exists():
        pytest.skip("no Python 3.6 here")
    modules = [name[:-3].replace("/", ".").removesuffix(".__init__") for name, _ in sources()]
    ours = [name for name in modules if name.startswith("koalapy_adapters")]
    program = f"""
import importlib, sys
sys.path.insert(0, {str(pushed)!r})
for name in {ours!r}:
    importlib.import_module(name)
    assert {str(pushed)!r} in sys.modules[name].__file__, name
assert "drmaa" not in sys.modules
from koalapy_adapters.__main__ import _PARTS
for name in _PARTS.values():
    assert callable(sys.modules[name].main), name
print("imported")
"""
    assert run([str(python), "-W", "error", "-I", "-S", "-c", program]) == (0, "imported\n", "")


def run(argv: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", [[], ["nothing"]], ids=["nothing", "unknown"])
def test_without_the_name_of_a_part_it_lists_them(pushed: Path, arguments: list[str]) -> None:
    status, out, err = run([sys.executable, "-I", "-S", str(pushed), *arguments])
    assert (status, out) == (2, "")
    assert "kcm" in err
    assert "rendezvous" in err
    assert err.count("\n") == 1


def test_an_older_python_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 5, 2, "final", 0))
    assert pushed_main.main(["kcm"]) == 2
    said = capsys.readouterr().err
    assert "Python 3.5.2, but koalapy needs 3.6 or later" in said
    assert said.count("\n") == 1


def test_nothing_newer_than_3_0_stands_before_that_sentence() -> None:
    ast.parse((ADAPTERS / "__main__.py").read_text(), feature_version=(3, 0))


# ---- batch systems that others have registered


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with a distribution that registers the batch system `lsf`."""
    info = tmp_path / "lsf_for_koala-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lsf-for-koala\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[koalapy.batch_systems]\nlsf = lsf_for_koala.dialect\n")
    package = tmp_path / "lsf_for_koala"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "dialect.py").write_text("NAME = 'lsf'\n")
    return tmp_path


LIST = """
import io, zipfile
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.errors import ClusterError
try:
    archive = zipfile.ZipFile(io.BytesIO(packed().data))
    print(sorted(name for name in archive.namelist() if name.startswith("koalapy_adapters/batch/lsf")))
    print(archive.read("koalapy_adapters/batch/lsf.py").decode())
except ClusterError as error:
    print(error.code, error.message)
"""


def test_another_batch_system_travels_as_one_of_ours(installed: Path) -> None:
    assert elsewhere(installed, installed, LIST) == "['koalapy_adapters/batch/lsf.py']\nNAME = 'lsf'\n\n"


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("slurm = lsf_for_koala.dialect", "its name is taken"),
        ("ls/f = lsf_for_koala.dialect", "its name is taken, or is none for a module"),
        ("lsf = lsf_for_koala", "is not one module in Python source"),
        ("lsf = lsf_for_koala.missing", "is not one module in Python source"),
        ("lsf = not_installed.dialect", "No module named 'not_installed'"),
    ],
    ids=["taken", "no-name", "package", "missing", "not-installed"],
)
def test_one_that_cannot_travel_is_named_with_the_reason(installed: Path, entry: str, why: str) -> None:
    points = installed / "lsf_for_koala-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[koalapy.batch_systems]\n{entry}\n")
    said = elsewhere(installed, installed, LIST)
    assert said.startswith("batch_system_unpackable")
    assert why in said


def test_packed_is_a_value() -> None:
    assert packed() is packed()
    assert isinstance(packed(), Packed)
