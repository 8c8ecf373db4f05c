"""`koala sim run` for its user: its output, its errors, and the files after an interrupt."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import groups
import pytest
from typer.testing import CliRunner, Result

from koalapy.cli.main import app

QUICK = ["--loads", "10", "--sets", "1", "--jobs", "20", "--workers", "1"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sim", "run", *arguments])


def test_json_is_one_document_and_messages_go_to_stderr(tmp_path: Path) -> None:
    said = run("dmm-messages", *QUICK, "--out", str(tmp_path), "--json")
    document = json.loads(said.stdout)
    assert (document["schema"], document["experiment"], document["seed"]) == ("koala.experiment/1", "dmm-messages", 1)
    assert [row["architecture"] for row in document["rows"]] == ["dmm"]
    assert sorted(document["files"]) == sorted(str(path) for path in tmp_path.iterdir())
    assert "1 of 1 runs" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dmm-lode"], "Did you mean dmm-load"),
        (["./nothing.yaml"], "cannot be read"),
        (["dmm-load", "--loads", "much"], "not a list of percentages"),
        (["dmm-load", "--loads", "0"], "from 1 to 1000"),
        (["dmm-load", "--sets", "0"], "--sets"),
        (["dmm-load", "--out", "/dev/null/x"], "is no directory"),
    ],
)
def test_an_invalid_command_is_refused_with_a_sentence(arguments: list[str], words: str) -> None:
    said = run(*arguments)
    assert said.exit_code == 2
    assert words in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("loads: [20, ten]", "x.yaml:6:13: loads.1 is 'ten', not a whole number"),
        ("architectures: [dmm, gondor]", "is not an architecture"),
        ("panels: [{title: x, columns: [goodness]}]", "goodness, which the table does not have"),
        ("along: hour", "there is no series"),
        ("architectures: []", "architectures is empty"),
        ("experiment: [", "x.yaml:4:7: a list that was opened"),
        ("lodes: [20]", "Did you mean loads"),
        ("system: das3", "no system das3"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    lines = ["koala: 1", "experiment: x", "about: x", "system: das2", "architectures: [dmm]", "loads: [20]"]
    lines += ["panels: [{title: x, columns: [goodput]}]"]
    key = line.partition(":")[0]
    text = "\n".join([line if each.startswith(f"{key}:") else each for each in lines])
    (tmp_path / "x.yaml").write_text(text if line in text else f"{text}\n{line}")
    said = run(str(tmp_path / "x.yaml"), *QUICK, "--out", str(tmp_path / "out"))
    assert said.exit_code == 2, said.output
    assert words in said.stderr
    assert not (tmp_path / "out").exists()


def test_an_interrupt_ends_all_processes_and_leaves_no_file(tmp_path: Path) -> None:
    """The interrupt goes to every process of the command, as from a terminal."""
    arguments = ["dmm-load", "--loads", "10", "--sets", "500", "--jobs", "20", "--workers", "2"]
    with subprocess.Popen(
        [sys.executable, "-m", "koalapy.cli.main", "sim", "run", *arguments, "--out", str(tmp_path / "out")],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "1 of 500" in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()  # until the last of them has closed it
        assert process.wait() == 130
    assert "koala: interrupted." in rest
    assert "Traceback" not in rest
    assert not (tmp_path / "out").exists()
    groups.await_end(process.pid)
