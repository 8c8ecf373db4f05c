"""Programs that a machine lacks for the tests: some runs leave tests out, a run before a landing none."""

import re
from pathlib import Path

import pytest
from programs import LEFT_OUT, need


def test_a_test_whose_program_is_missing_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"^{LEFT_OUT}there is no no-such-program here"):
        need("no-such-program")


def test_under_ci_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program"):
        need("no-such-program")


def test_what_only_root_has_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert need("chroot").endswith("/chroot")


TESTS = Path(__file__).parents[2]


def test_none_of_those_that_are_installed_for_the_tests_is_left_out_without_a_word() -> None:
    """A test that asks by itself whether a program is there is skipped under CI=true too."""
    text = (TESTS / "install-programs").read_text()
    installed = {*re.findall(r"\bhas ([\w.]+)", text), *re.search(r"for shell in ([\w ]+);", text)[1].split()}  # type: ignore[index]
    assert {"chromium", "man", "mpicc.mpich", "promtool", "zsh"} <= installed
    asks = re.compile(rf"""which\(f?["']({"|".join(map(re.escape, installed))})["']""")
    found = {path.name: asks.findall(path.read_text()) for path in TESTS.rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {"postgresql.py": ["initdb"]}
