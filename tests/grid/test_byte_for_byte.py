"""A user's values reach the program byte for byte, by every way into a batch system, from the Python client on.

One batch job carries hundreds of values. Where one comes out otherwise, it is made smaller by jobs of many candidates.
"""

import base64
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import real_grid
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

MANY = 150  # values of a job, as arguments; and as many in the environment
EXAMPLES = 3  # each of them for every way at once
PYTHON = "/usr/bin/python3"
DUMP = """
import base64, json, os
lines = {name: open("/proc/self/" + name, "rb").read().split(b"\\0")[:-1] for name in ("cmdline", "environ")}
print(json.dumps({name: [base64.b64encode(word).decode() for word in words] for name, words in lines.items()}))
"""
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "slurm2205": ("alpha", {}),
    "slurm2411": ("delta", {}),
    "sgecommands": ("gamma", {"drmaa": "off", "shared": "/home/koala/.koala-commands"}),
    "sgedrmaa": ("gamma", {"drmaa": "auto"}),
    "torque": ("beta", {"batch": "torque", "processors_per_node": 4, "shared": "/shared/koala/torque"}),
}
LOCAL = {"batch": "local", "connect": "local:", "slots": 4}
PLACES = [*WAYS, "local"]

NASTY = [
    "", " ", "  a  b ", "\t", "\n", "a\nb\n", "\r\n", "'", '"', "''", '"a', "it's", "\\", "\\\\", "\\n", "a\\",
    "`id`", "$(id)", "${PATH}", "$HOME", "$", "~", "*", "?", "[a-z]", "{a,b}", "{x}", "!", "!!", "#",
    "#SBATCH -N 99", "#$ -pe mpi 99", "#PBS -l x", "-", "--", "-n", "--help", "-o=/x", "=", "a=b", ";", "|",
    "&", "&&", "<", ">", "%", "%j", "%%", "$JOB_ID", "$TASK_ID", "^", "@", ",", "a,b", ":", "\x01", "\x1b[31m",
    "\x7f", "é", "e\u0301", "\u00a0", "\u2028", "\ufeff", "漢字", "😀", "\u202e", "EOF", "\nEOF\n",
]  # fmt: skip
pieces = st.sampled_from([*" \t\n\r'\"\\$(){}[]`;&|<>*?!#~%^=,:@-+/.", "$(", "${", "\\\n", "--", "%j", "a", "Z", "0"])
anything = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
values = st.one_of(st.lists(st.one_of(pieces, anything), max_size=12).map("".join), st.text(anything, max_size=40))


class Ways:
    """koalad over every way, and the local queue."""

    def __init__(self, koalad: Any) -> None:
        self._koalad = koalad

    def reach(self, sent: Sequence[str], places: Sequence[str]) -> dict[str, list[str]]:
        """Return for each place the values that did not come out as they were written."""
        jobs = [self._submit(sent, place) for place in places]
        ended = self._koalad.grid.wait(jobs, 300)
        for job in ended:
            assert job["state"] == "done", (job["components"], job["reason"])
        return {place: self._wrong(sent, job) for place, job in zip(places, jobs, strict=True)}

    def _submit(self, sent: Sequence[str], place: str) -> int:
        component = {
            "processors": 1,
            "cluster": place,
            "executable": PYTHON,
            "arguments": ["-S", "-c", DUMP, *sent],
            "environment": {f"V{number}": value for number, value in enumerate(sent)},
            "walltime": "2m",
        }
        return int(self._koalad.submit(component))

    def _wrong(self, sent: Sequence[str], job: int) -> list[str]:
        said = json.loads(b"".join(self._koalad.grid.output(job)))
        found = {name: [base64.b64decode(word) for word in words] for name, words in said.items()}
        arguments = found["cmdline"][4:]
        environment = set(found["environ"])
        wrong = [
            value
            for number, value in enumerate(sent)
            if arguments[number : number + 1] != [value.encode()] or f"V{number}={value}".encode() not in environment
        ]
        return wrong if wrong or len(arguments) == len(sent) else ["more arguments than were sent"]


@pytest.fixture(scope="module")
def ways(testgrid_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    testgrid_session.reset()
    directory = tmp_path_factory.mktemp("bytes")
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("XDG_STATE_HOME", str(directory / "state"))
        patch.setenv("XDG_RUNTIME_DIR", str(directory))
        clusters = _clusters(testgrid_session, directory)
        koalad = real_grid.Koalad(testgrid_session, directory, clusters, retries={"submission": 1})
        stack.callback(koalad.stop)
        koalad.until(lambda: all(each["idle"] for each in koalad.grid.clusters()))
        yield Ways(koalad)


def _clusters(testgrid: Any, directory: Path) -> dict[str, Any]:
    known = testgrid.grid()["clusters"]
    clusters = {name: known[cluster] | changed for name, (cluster, changed) in WAYS.items()}
    return clusters | {"local": LOCAL | {"shared": str(directory / "shared")}}


@pytest.mark.timeout(900)
def test_arguments_and_environment_reach_the_program_byte_for_byte(ways: Ways) -> None:
    wrong = ways.reach(NASTY, PLACES)

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(values, min_size=MANY, max_size=MANY, unique=True))
    def many(sent: list[str]) -> None:
        if not any(wrong.values()):
            wrong.update(ways.reach(sent, PLACES))

    many()
    report = [
        f"by {place} {smallest(ways, place, each[0])!r} does not arrive as it was written"
        for place, each in wrong.items()
        if each
    ]
    assert report == []


def smallest(ways: Ways, place: str, value: str) -> str:
    """A value as small as may be that does not arrive there either; a job for each round of candidates."""
    while True:
        still = ways.reach(candidates(value), [place])[place] if value else []
        if not still:
            return value
        value = min(still, key=len)


def candidates(value: str) -> list[str]:
    """Return variants of the value without some of its characters, and with plainer ones."""
    spans = [(at, size) for size in {len(value) // 2, len(value) // 4, 1} if size for at in range(len(value))]
    without = [value[:at] + value[at + size :] for at, size in spans]
    plainer = [value[:at] + "a" + value[at + 1 :] for at in range(len(value)) if not value[at].isalnum()]
    return sorted({each for each in without + plainer if each != value})


def test_what_the_smallest_is_made_of_gets_shorter_or_plainer() -> None:
    for value in ("a$(b)c", "\n", "aé"):
        assert all(len(each) < len(value) or each.count("a") > value.count("a") for each in candidates(value))
