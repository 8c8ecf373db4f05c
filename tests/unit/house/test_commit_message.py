"""`.ci/commit-message` accepts a plain imperative subject, and names what is wrong with another one."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tree_copy import ROOT, commit, git

CHECK = ROOT / ".ci" / "commit-message"
SCISSORS = "# ------------------------ >8 ------------------------"

main = runpy.run_path(str(CHECK))["main"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "COMMIT_EDITMSG"


def check(file: Path, message: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit status, and the faults that it names."""
    file.write_text(message, encoding="utf-8")
    status = main([str(file)])
    out, err = capsys.readouterr()
    assert not out
    return status, err.splitlines()


@pytest.mark.parametrize(
    "message",
    [
        "Fix the count of retries after a restart",
        "Add a check of commit messages\n",
        "Release koalapy 0.2.0",  # a version ends it, and no full stop
        'Revert "Fix the count of retries"\n\nThis reverts commit 0123456.\n',
        "Show why a pilot waits\n\nThe reason was in the log only.\n",
        "\n# Please enter the commit message.\n\nUse one clock\n# On branch main\n",
        f"Use one clock\n\n{SCISSORS}\n# Do not modify the line above.\ndiff --git a/x b/x\nHe wrote no subject.\n",
        "Add " + "x" * 68,
        "Add größere Schriftzeichen: 72 of them are 72, however many bytes é is",
    ],
)
def test_a_plain_subject_is_accepted(file: Path, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(file, message, capsys) == (0, [])


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("", "has no subject"),
        ("# only a comment\n\n", "has no subject"),
        ("Hold that a pilot ends", "begins with 'Hold'"),
        ("Let a session end", "begins with 'Let'"),
        ("Tell of an order", "begins with 'Tell'"),
        ("Fixed the count", "begins with 'Fixed'"),
        ("Fixes the count", "begins with 'Fixes'"),
        ("fix the count", "begins with 'fix'"),
        ("fix: the count", "begins with 'fix:'"),
        ("Fix: the count", "begins with 'Fix:'"),
        ("The count is fixed", "begins with 'The'"),
        ("fixup! Fix the count", "begins with 'fixup!'"),
        ("Fix", "names nothing"),
        ("Fix the count.", "ends with a full stop"),
        ("Fix the count…\nof retries", "second line is not blank"),
        ("Add " + "x" * 69, "has 73 characters"),
    ],
)
def test_a_fault_of_a_subject_is_named(
    file: Path, message: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, named = check(file, message, capsys)
    assert status == 1
    assert [fault in each for each in named] == [True], named


def test_all_faults_are_named_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, named = check(file, "Hold " + "x" * 70 + ".\nbody", capsys)
    assert status == 1
    assert len(named) == 4


def test_a_message_that_cannot_be_read_is_no_fault_of_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-I", CHECK, tmp_path / "none"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No such file" in done.stderr
    assert subprocess.run([sys.executable, "-I", CHECK], capture_output=True).returncode == 2


def test_git_runs_it_as_a_hook(tmp_path: Path) -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "core.hooksPath=.git/hooks")
        return subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True)

    git("init", "-q").check_returncode()
    (tmp_path / ".git" / "hooks").mkdir(exist_ok=True)
    (tmp_path / ".git" / "hooks" / "commit-msg").symlink_to(CHECK)
    refused = git("commit", "-q", "--allow-empty", "-m", "Changed things")
    assert refused.returncode != 0
    assert "begins with 'Changed'" in refused.stderr
    assert git("commit", "-q", "--allow-empty", "-m", "Change the clock").returncode == 0
    assert git("log", "--format=%s").stdout == "Change the clock\n"


def test_ci_checks_the_messages_that_main_does_not_have(tmp_path: Path) -> None:
    upstream, clone = tmp_path / "upstream", tmp_path / "clone"
    for folder in (".ci", "tests"):
        (upstream / folder).mkdir(parents=True)
    for name in ("run", "commit-message"):
        shutil.copy(ROOT / ".ci" / name, upstream / ".ci")
    (upstream / "tests" / "run").write_text("#!/bin/sh\necho the tests\n")
    (upstream / "tests" / "run").chmod(0o755)
    git(upstream, "init", "--quiet", "--initial-branch=main")
    commit(upstream, "The tree, by an old rule.")
    git(tmp_path, "clone", "--quiet", str(upstream), str(clone))

    def ci() -> subprocess.CompletedProcess[str]:
        return subprocess.run([".ci/run"], cwd=clone, capture_output=True, text=True)

    git(clone, "commit", "--quiet", "--allow-empty", "--message", "Fix a fault")
    assert (ci().returncode, ci().stdout) == (0, "the tests\n")
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "Fixed a fault")
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "Fix another fault")
    done = ci()
    assert done.returncode == 1
    assert not done.stdout
    assert "begins with 'Fixed'" in done.stderr
    assert done.stderr.endswith(" Fixed a fault\n")
    git(clone, "update-ref", "-d", "refs/remotes/origin/main")  # then there is nothing to compare with
    assert ci().stdout == "the tests\n"
