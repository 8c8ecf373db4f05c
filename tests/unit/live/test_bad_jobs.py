"""Job files that are wrong: one clear sentence, exit status 2, and nothing half-submitted."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from koalapy.model.errors import KoalaError, RequestError

Document = dict[str, Any]
JOB = "name: test\ncomponents:\n  - {processors: 2, executable: /bin/true}\n"


def job(old: str, new: str) -> bytes:
    assert old in JOB
    return JOB.replace(old, new).encode()


BAD_JOBS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("is empty",)),
    "blank": (b"\n\n# nothing\n", ("is empty",)),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", ("is not a text file",)),
    "not UTF-8": (JOB.encode() + b"labels: {a: caf\xe9}\n", (":4:16:", "not UTF-8", "Save the file as UTF-8.")),
    "a null byte": (JOB.encode() + b"\0", ("is not text",)),
    "huge": (JOB.encode() + b"#" * 10_000_001, ("larger than 10 MB",)),
    "malformed": (job("{processors: 2", "{processors: 2, ["), (":3:",)),
    "a tab": (job("  - {", "\t- {"), (":3:",)),
    "a list": (b"- processors: 2\n", (":1:",)),
    "a scalar": (b"hello\n", (":1:", "hello")),
    "unknown key": (JOB.encode() + b"priorty: 3\n", (":4:", "priorty", "priority")),
    "unknown component key": (job("processors: 2", "processors: 2, procesors: 2"), (":3:", "procesors", "processors")),
    "no components": (b"name: test\n", ("components",)),
    "empty components": (b"components: []\n", (":1:", "components")),
    "no executable": (job(", executable: /bin/true", ""), (":3:", "executable")),
    "an empty executable": (job("/bin/true", "''"), (":3:", "executable")),
    "zero processors": (job("processors: 2", "processors: 0"), (":3:", "processors is 0")),
    "negative processors": (job("processors: 2", "processors: -4"), (":3:", "processors is -4")),
    "absurd processors": (job("processors: 2", "processors: 1000000000000"), (":3:", "more than 1000000")),
    "a fraction": (job("processors: 2", "processors: 2.5"), (":3:", "2.5")),
    "a word": (job("processors: 2", "processors: four"), (":3:", "four")),
    "not a number": (job("processors: 2", "processors: .nan"), (":3:", ".nan")),
    "too many components": (b"components:\n" + b"  - {processors: 1, executable: a}\n" * 1025, ("components", "1024")),
    "unknown cluster": (job("processors: 2", "cluster: delftt, processors: 2"), (":3:", "delftt", "delft")),
    "no walltime": (job("processors: 2", "walltime: 0s, processors: 2"), (":3:", "walltime")),
    "an odd walltime": (job("processors: 2", "walltime: soon, processors: 2"), (":3:", "walltime", "soon")),
    "a priority out of range": (JOB.encode() + b"priority: 21\n", (":4:", "priority")),
    "leaving the directory": (JOB.encode() + b"stage_out: [../../etc/passwd]\n", (":4:", "stage_out")),
    "an alias": (JOB.encode() + b"stage_in: *all\n", (":4:", "alias")),
    "a tag": (JOB.encode() + b"stage_in: !!python/object:os.system [x]\n", (":4:", "tag")),
    "deep": (b"a: " + b"[" * 5000, ()),
    "a key twice": (JOB.encode() + b"name: again\n", (":4:", "name")),
}


@pytest.fixture
def before(koala: Any) -> list[int]:
    return list(koala.ids())


@pytest.mark.parametrize(("text", "words"), BAD_JOBS.values(), ids=BAD_JOBS)
def test_a_bad_job_file_is_refused_with_its_line(
    koala: Any, before: list[int], text: bytes, words: tuple[str, ...]
) -> None:
    file = koala.write("bad.yaml", text)
    koala("submit", file).refused(2, str(file), *words)
    assert koala.ids() == before


def test_a_job_file_that_is_none(koala: Any, before: list[int]) -> None:
    koala("submit", "missing.yaml").refused(2, f"There is no file {koala.work}/missing.yaml.")
    koala("submit", koala.root).refused(2, f"{koala.root} is a directory.")
    koala("submit", "/dev/zero").refused(2, "/dev/zero is larger than 10 MB.")
    koala("submit", "/dev/null").refused(2, "/dev/null is empty.")
    koala("submit", "x" * 300).refused(2, "File name too long")
    if os.path.exists("/proc/self/mem"):
        koala("submit", "/proc/self/mem").refused(2, "/proc/self/mem")
    assert koala.ids() == before


def test_a_language_without_a_reader_is_reported(koala: Any, before: list[int]) -> None:
    koala("submit", koala.write("job.xml", b"<workflow/>")).refused(2, "workflow")
    assert koala.ids() == before


def test_what_no_cluster_can_hold_is_a_job_that_fails_in_words(koala: Any, shell: Callable[..., Document]) -> None:
    file = koala.write("large.yaml", {"components": [shell("true", 1_000_000)]})
    answer = koala("submit", "--wait", file)
    assert answer.status == 1
    assert "1000000" in answer.err
    assert "amsterdam has 4" in answer.err


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"queue": "nowhere"}, 'has no queues, and this job asks for "nowhere"'),
        ({"gpus": 1}, "has no GPUs"),
        ({"constraint": "fast"}, "has no node features"),
    ],
)
def test_what_the_embedded_batch_system_has_not_is_reported(
    koala: Any, shell: Callable[..., Document], wish: Document, words: str
) -> None:
    file = koala.write("wish.yaml", {"components": [shell("true", cluster="delft", **wish)]})
    answer = koala("submit", "--wait", file)
    assert answer.status == 1, answer
    assert words in answer.err
    anywhere = koala.write("anywhere.yaml", {"components": [shell("true", **wish)]})
    answer = koala("submit", "--wait", anywhere)
    assert answer.status == 1, answer
    assert words in answer.err


BAD_MAPPINGS: dict[str, Any] = {
    "nothing": {},
    "no list": {"components": 7},
    "none": {"components": None},
    "text": {"components": "four"},
    "no mapping": {"components": [7]},
    "a truth value": {"components": [{"processors": True, "executable": "x"}]},
    "a fraction": {"components": [{"processors": 1.5, "executable": "x"}]},
    "bytes in words": {"components": [{"processors": 1, "executable": "x\0y"}]},
    "a surrogate": {"components": [{"processors": 1, "executable": "x\ud800"}]},
    "nested": {"components": [[[[{}]]]]},
    "an odd key": {"components": [{"processors": 1, "executable": "x"}], "": 1},
}


@pytest.mark.parametrize("mapping", BAD_MAPPINGS.values(), ids=BAD_MAPPINGS)
def test_a_bad_mapping_is_refused_in_words(koala: Any, before: list[int], mapping: Any) -> None:
    with koala.client() as grid, pytest.raises(RequestError) as refused:
        grid.submit(mapping)
    assert refused.value.reason.message.endswith(".")
    assert refused.value.reason.advice.endswith((".", "`."))
    assert koala.ids() == before


@pytest.mark.parametrize("mapping", [{"components": {1, 2}}, {"components": object()}, {1: 2}])
def test_a_mapping_that_is_no_json_is_refused_too(koala: Any, mapping: Any) -> None:
    with koala.client() as grid, pytest.raises(KoalaError):
        grid.submit(mapping)
