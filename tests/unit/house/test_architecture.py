"""The arrows that import-linter cannot see: the deciding rooms import nothing that touches the world."""

import ast
import re
import subprocess
import sys
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import koalapy_adapters
import pytest

import koalapy
from koalapy.cli import main as cli

ROOT = Path(koalapy.__file__).parent
ADAPTERS = Path(koalapy_adapters.__file__).parent
DECIDING = (
    "model",
    "policies",
    "information",
    "broker",
    "core",
    "attempts",
    "scheduler",
    "coallocation",
    "scavenging",
    "sites",
    "pilots",
    "link",
    "views",
    "engine.py",
    "driver",
    "journal/journal.py",
    "journal/state.py",
    "journal/replay.py",
)
PARSING = ("config", "languages")
WORLD = frozenset(
    {
        "asyncio",
        "concurrent",
        "http",
        "importlib",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
PARSERS_MAY = frozenset({"io"})


def modules(*rooms: str) -> list[Path]:
    places = [ROOT / room for room in rooms]
    return [path for place in places for path in ([place] if place.suffix else sorted(place.rglob("*.py")))]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


def test_what_decides_does_not_touch_the_world() -> None:
    assert not {path: touched for path in modules(*DECIDING) if (touched := imported(path) & WORLD)}


def test_what_parses_is_handed_its_text() -> None:
    assert not {path: touched for path in modules(*PARSING) if (touched := imported(path) & (WORLD - PARSERS_MAY))}


def test_what_decides_asks_no_clock() -> None:
    asking = {path for path in modules(*DECIDING) if asks_a_clock(ast.parse(path.read_text()))}
    assert {path.name for path in asking} <= {"driver.py", "link_loop.py"}, asking


def asks_a_clock(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("now", "utcnow", "today")
        for node in ast.walk(tree)
    )


# What answers people, or plays one.
SHOWING = ("api", "cli", "views", "runtime/maintenance", "runtime/service.py", "runtime/sweeps.py")
SHOWING_TOO = (
    "runtime/logins.py",
    "runtime/unknown.py",
    "runtime/pilots.py",
    "runtime/leases.py",
    "chaos/site_actions.py",
)


def test_no_function_of_a_view_is_called_by_what_acts() -> None:
    showing = {*modules(*SHOWING, *SHOWING_TOO)}
    asking = {}
    for path in {*ROOT.rglob("*.py")} - showing:
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        views = [node for node in nodes if (node.module or "").startswith("koalapy.views")]
        functions = [name.name for node in views for name in node.names if name.name.islower()]
        if functions:
            asking[path] = functions
    assert not asking


# What the two worlds have each: a host, its files, and the ends of connections that the same code uses in both.
OF_EACH_WORLD = {"SimHost", "Mount", "PipeConnection", "SimSiteEnd"}
# Simulated classes beside real ones, until both worlds run the same code there too.
NOT_SHARED_YET = {"SimClusterLink", "SimStreams", "SimSockets", "SimFileRelay"}


def test_the_simulated_world_has_no_second_version_of_a_real_class() -> None:
    """It would share at least three public methods, and more than half of its own, with the real one."""
    real = [methods for _, methods in methods_of_classes(ROOT / "runtime", ADAPTERS)]
    doubles = {
        name
        for name, methods in methods_of_classes(ROOT / "world")
        if any(len(methods & each) > max(2, len(methods) / 2) for each in real)
    }
    assert doubles == OF_EACH_WORLD | NOT_SHARED_YET


def methods_of_classes(*rooms: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each class that is no protocol, with the names of its public methods."""
    for path in (path for room in rooms for path in sorted(room.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in node.bases):
                names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                yield node.name, {name for name in names if not name.startswith("_")}


RUN_ON_NODES = frozenset({"pbs_starting.py", "pbs_bridge.py", "pbs_meeting.py"})
RUNS = frozenset({"fork", "popen", "system", "spawnv", "execv", "execvp", "posix_spawn", "kill"})


def test_a_dialect_runs_nothing() -> None:
    dialects = [path for path in sorted((ADAPTERS / "batch").glob("*.py")) if path.name not in RUN_ON_NODES]
    assert dialects
    for path in dialects:
        called = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not imported(path) & {"subprocess", "socket", "asyncio", "threading", "multiprocessing", "pty"}, path
        assert not called & RUNS, path


def test_few_places_open_a_port() -> None:
    """Metrics and site of koalad, `koala forward`, the KCM's relay, and the first node of a PBS job for its others."""
    inet = {"AF_INET", "AF_INET6"}
    found = set()
    for path in (*ROOT.rglob("*.py"), *ADAPTERS.rglob("*.py")):
        called = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if inet & called and called & {"bind", "create_server"}:
            found.add(path.name)
    assert found == {"server.py", "listener.py", "forwarding.py", "addresses.py", "pbs_meeting.py"}


CHECKOUT = Path(__file__).parents[3]
INVARIANTS = (CHECKOUT / "ARCHITECTURE.md").read_text().split("## Invariants")[1].split("\n- ")[1:]


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda text: text.split("**")[1])
def test_every_invariant_names_the_tests_that_hold_it(invariant: str) -> None:
    tests = re.findall(r"`(tests/[\w/]+\.py)`", invariant)
    assert tests, "it names no test"
    assert all((CHECKOUT / each).exists() for each in tests)


OTHER_FOLDERS = {
    "adapters": "modules of koalapy_adapters that are in no room",
    "configs": "programs that are shipped as examples",
    "house": "the repository itself: architecture, prose, pages, packaging",
    "live": "real commands, and a real koalad",
    "samples": "captured output, no tests",
}


def test_unit_tests_are_in_folders_named_for_rooms() -> None:
    """A room is a folder or a module of one of the halves."""
    rooms = {path.stem for half in (ROOT, ADAPTERS) for path in half.iterdir()}
    unit = CHECKOUT / "tests" / "unit"
    files = (path.relative_to(unit) for path in unit.rglob("*") if path.is_file() and path.suffix != ".pyc")
    folders = {path.parts[0] for path in files if len(path.parts) > 1}
    assert folders - rooms == set(OTHER_FOLDERS)
    assert not list(unit.glob("test_*.py")), "a test belongs in the folder of its room"


def arrows() -> dict[str, set[str]]:
    """Every module of both halves, and those that it imports, wherever in it and for whatever."""
    paths = {name: path for root in (ROOT, ADAPTERS) for path in root.rglob("*.py") for name in [module_name(path)]}
    return {name: set(imports(path, paths)) - {name} for name, path in paths.items()}


def module_name(path: Path) -> str:
    root = ROOT if path.is_relative_to(ROOT) else ADAPTERS
    parts = (root.name, *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, known: Container[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module in known:
            inside = {f"{node.module}.{each.name}" for each in node.names}
            yield from (each for each in inside if each in known)
            if not all(each in known for each in inside):
                yield node.module


def test_no_module_is_imported_by_what_it_imports() -> None:
    """Where two modules need each other, a part belongs in a third one: what both need, or what joins them."""
    try:
        TopologicalSorter(arrows()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_a_command_starts_without_what_only_others_need() -> None:
    """`koala jobs` does not load a web framework, a database and a doctor."""
    code = "import sys, koalapy.cli.main as cli; cli.Commands().get_command(None, 'jobs'); print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "koalapy.cli.jobs" in loaded
    assert not {"fastapi", "uvicorn", "sqlalchemy", "alembic", "paramiko", "docker", "lark", "lxml", "numpy"} & loaded
    assert not {"pydantic", "koalapy.config", "koalapy.doctor", "koalapy.cli.doctor"} & loaded
    assert not {"koalapy.world", "koalapy.chaos", "koalapy.experiments"} & loaded


HEAVY = {
    "httpx",
    "rich",
    "yaml",
    "pygments",
    "click",
    "numpy",
    "lark",
    "lxml",
    "cryptography",
    "paramiko",
    "fastapi",
    "sqlalchemy",
}
OF_TYPER = {"pydantic"}  # typer 0.29 checks values with it, once a command's options are read
SHORT = (
    "jobs", "submit", "status", "run", "config", "runners", "login", "clean", "sweep", "logs", "show", "wait", "cancel",
)  # fmt: skip


@pytest.mark.parametrize("line", ["--version", "--help", "--nonsense"])
def test_what_needs_no_command_imports_next_to_nothing(line: str) -> None:
    assert not (HEAVY | OF_TYPER | {"koalapy.client", "koalapy.model", "http.client"}) & imported_by(line)


@pytest.mark.parametrize("line", [f"{name} {wrong}" for name in SHORT for wrong in ("--help", "--nonsense")])
def test_help_and_a_wrong_option_wait_for_no_library(line: str) -> None:
    """The types of koalad's answers are for the type checker only: to import them takes 10 ms."""
    loaded = imported_by(line)
    assert not HEAVY & loaded
    assert not any(name.startswith("koalapy.answers") for name in loaded)


def test_jobs_in_a_pipe_asks_koalad_without_a_library(tmp_path: Path) -> None:
    """From shell to shell it takes what Python, typer and koalad take."""
    (tmp_path / "grid.yaml").write_text("grid: nobody\n")
    loaded = imported_by(f"jobs --grid {tmp_path / 'grid.yaml'}", status=3)
    assert {"koalapy.client.calls", "koalapy.cli.jobs", "http.client"} <= loaded
    assert not HEAVY & loaded


def imported_by(line: str, status: int | None = None) -> set[str]:
    """All modules of a real `koala` with this command line."""
    code = "import atexit, sys; atexit.register(lambda: sys.stderr.write('\\n' + ' '.join(sys.modules)))"
    code += "; sys.argv[0] = 'koala'; from koalapy.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *line.split()], capture_output=True, text=True)
    assert status is None or done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return set(done.stderr.splitlines()[-1].split())


# Commands in the file of another one, with which they are a pair.
WITH_ANOTHER = {"down": "up", "grids": "status", "resubmit": "submit", "release": "hold"}


def test_each_command_is_in_the_file_of_its_name() -> None:
    modules = {name: module for name, (module, _) in cli.COMMANDS.items()}
    assert modules == {name: WITH_ANOTHER.get(name, name) for name in modules}


def test_the_table_of_commands_is_what_their_modules_have() -> None:
    modules = dict.fromkeys(module for module, _ in cli.COMMANDS.values())
    assert {name: module for module in modules for name in cli.commands_of(module)} == {
        name: module for name, (module, _) in cli.COMMANDS.items()
    }
    with_commands = {path.stem for path in (ROOT / "cli").glob("*.py") if "\napp = typer.Typer(" in path.read_text()}
    assert with_commands - {"main"} == set(modules)
