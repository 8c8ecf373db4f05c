"""pytest's options for the contract of batch systems, and how targets and recordings become tests."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # every pytest run where koalapy is installed loads this module
    from koalapy_adapters.contract.live import Live
    from koalapy_adapters.contract.parallel_runs import ParallelRuns, Trial
    from koalapy_adapters.contract.target import Target

_SUITE = ("test_attempts", "test_capacity", "test_commands", "test_head", "test_recorded", "typed")
pytest.register_assert_rewrite(*(f"koalapy_adapters.contract.{name}" for name in _SUITE))

_TRIAL: "pytest.StashKey[Trial]" = pytest.StashKey()
_RUNS: "pytest.StashKey[ParallelRuns]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("koalapy", "koalapy's contract of batch systems")
    add = group.addoption
    add("--batch", metavar="NAME", help="the batch system to try, as registered under koalapy.batch_systems")
    add("--connect", metavar="URL", help="its head node, as in a grid file: local:, ssh://…, docker://…, command:…")
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="a further setting, such as queue=batch")
    add("--neighbour", metavar="KEY=VALUE", action="append", default=[], help="a setting of another user's login")
    add("--refuses", metavar="WHAT", help="what it refuses at once, of queue,account,processors,walltime,lowest")
    add("--array", metavar="OPTION", default="", help="the native option, or a command, that makes an array")
    add("--restart", metavar="COMMAND", default="", help="a shell command that has it start the job {id} again")
    add("--operator", metavar="KEY=VALUE", action="append", default=[], help="a setting of the login for --restart")
    add("--remembers", metavar="SECONDS", type=float, default=300.0, help="how long it lists a job that has ended")
    add("--record", metavar="DIRECTORY", help="record the output of the batch system's commands")
    add("--recorded", metavar="DIRECTORY", help="try the dialect on what was written down, too or instead of --connect")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: waits for minutes; deselect with -m 'not slow'")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "live" in metafunc.fixturenames:
        targets = getattr(metafunc.module, "TARGETS", None)
        metafunc.parametrize("live", _named(metafunc.config) if targets is None else targets, ids=_name)
    if "recording" in metafunc.fixturenames:
        places = getattr(metafunc.module, "RECORDED", None)
        found = list(_recordings(_recorded(metafunc.config) if places is None else places))
        metafunc.parametrize("recording", found, ids=_name)


def pytest_collection_finish(session: pytest.Session) -> None:
    from koalapy_adapters.contract.parallel_runs import ParallelRuns, Trial
    from koalapy_adapters.contract.target import Target

    for item in session.items:
        target = _parameter(item, "live")
        if isinstance(target, Target) and isinstance(item, pytest.Function):
            others = {name: value for name, value in item.callspec.params.items() if name != "live"}
            item.stash[_TRIAL] = Trial(target, functools.partial(item.function, **others))
    trials = [item.stash[_TRIAL] for item in session.items if _TRIAL in item.stash]
    if trials:
        session.config.stash[_RUNS] = ParallelRuns(trials, lambda target: _opened(session.config, target))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a live test in its target's lane. Returns None for other tests."""
    if _TRIAL not in pyfuncitem.stash:
        return None
    pyfuncitem.config.stash[_RUNS].outcome(pyfuncitem.stash[_TRIAL])
    return True


def pytest_unconfigure(config: pytest.Config) -> None:
    if _RUNS in config.stash:
        config.stash[_RUNS].close()


def _parameter(item: pytest.Item, name: str) -> Any:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(name) if callspec is not None else None


def _named(config: pytest.Config) -> list["Target"]:
    """The target of the command line; none if only recordings are tried."""
    from koalapy_adapters.contract.target import Target

    batch, connect = config.getoption("--batch"), config.getoption("--connect")
    if not batch:
        raise pytest.UsageError("Name the batch system to try: --batch NAME.")
    if not connect and config.getoption("--recorded"):
        return []
    refuses = config.getoption("--refuses")
    settings = {"batch": batch, "connect": connect or "local:", **_settings(config, "--set")}
    target = Target(
        name=batch,
        head=settings["connect"],
        settings=lambda: settings,
        neighbour=_settings(config, "--neighbour"),
        array=config.getoption("--array"),
        restart=config.getoption("--restart"),
        operator=_settings(config, "--operator"),
        remembers_s=config.getoption("--remembers"),
    )
    return [target if refuses is None else _refusing(target, frozenset(refuses.split(",")) - {""})]


def _refusing(target: "Target", refuses: frozenset[str]) -> "Target":
    import dataclasses

    from koalapy_adapters.contract.target import REFUSALS

    if not refuses <= set(REFUSALS):
        raise pytest.UsageError(f"--refuses takes some of {','.join(REFUSALS)}.")
    return dataclasses.replace(target, refuses=refuses)


def _settings(config: pytest.Config, option: str) -> dict[str, Any]:
    import yaml

    pairs = [pair.partition("=") for pair in config.getoption(option)]
    return {key: yaml.safe_load(value) for key, _, value in pairs}


def _opened(config: pytest.Config, target: "Target") -> "Live":
    from koalapy_adapters.contract.live import Live
    from koalapy_adapters.contract.recordings import Recorder

    place = config.getoption("--record")
    return Live(target, Recorder(Path(place) / target.name) if place else None)


def _recorded(config: pytest.Config) -> list[Path]:
    place = config.getoption("--recorded")
    return [Path(place)] if place else []


def _recordings(places: list[Path]) -> Iterator[Any]:
    from koalapy_adapters.contract.recordings import Recording

    for place in places:
        for path in sorted(place.rglob("*.json")):
            yield Recording(f"{path.parent.name}-{path.stem}", json.loads(path.read_text()))


def _name(value: Any) -> str:
    return str(value.name)
