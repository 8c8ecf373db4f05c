"""JDL as people wrote it for DataGrid, CrossGrid, gLite, CREAM and DIRAC: each kind of text, and how it is read.

`samples/jdl_record.txt` has a text below each title, then `=>` with the reading: the keys of a job file that are not
the default, or line, column and the words of the refusal. The texts are our own; the attributes and their forms are
those of the public record.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from job_languages import read_jdl

from koalapy.languages.mapping import job_mapping
from koalapy.model.errors import RequestError

RECORD = Path(__file__).parents[1] / "samples" / "jdl_record.txt"
DEFAULT = read_jdl('Executable = "a";', "job.jdl", "/home/me")


def rows() -> list[Any]:
    found = [block.partition("\n") for block in RECORD.read_text(encoding="utf-8").split("### ")[1:]]
    texts = [(title, *body.rsplit("=> ", 1)) for title, _, body in found]
    return [pytest.param(text.replace("\\r", "\r"), said.strip(), id=title) for title, text, said in texts]


def reading(text: str) -> str:
    """Return the reading in one line."""
    try:
        found = flat(job_mapping(read_jdl(text, "job.jdl", "/home/me")))
    except RequestError as error:
        return f"refused {error.reason.message.removeprefix('job.jdl:')}"
    default = flat(job_mapping(DEFAULT))
    return json.dumps({key: value for key, value in found.items() if default.get(key) != value})


def flat(mapping: dict[str, Any]) -> dict[str, Any]:
    (component,) = mapping.pop("components")
    return {**mapping, **component}


def test_there_are_a_hundred() -> None:
    assert len(rows()) >= 100


@pytest.mark.parametrize(("text", "said"), rows())
def test_it_is_read_or_refused_with_the_reason(text: str, said: str) -> None:
    assert reading(text) == said
