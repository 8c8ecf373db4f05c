"""`koala status --unknown` and `koala clean --store` with more tags than a person reads."""

from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from koalapy.cli import clean
from koalapy.cli.main import app
from koalapy.model.identity import AttemptId, InstanceId, JobId, Tag, tag_of
from koalapy.model.units import Instant
from koalapy.runtime.unknown import Survey, UnknownTag
from koalapy.runtime.unknown import answer as document_of

OWN, OTHER = InstanceId("abcde"), InstanceId("gpetb")


class Koalad:
    """A koalad on whose clusters tags of other stores lie."""

    def __init__(self, tags: Sequence[UnknownTag]) -> None:
        self.tags = {str(each.tag): each for each in tags}
        self.begun: list[str] = []
        self.most_begun = 0

    def __call__(self, _grid: object) -> "Koalad":
        return self

    def __enter__(self) -> "Koalad":
        return self

    def __exit__(self, *_: object) -> None: ...

    def unknown(self, clusters: Sequence[str] = ()) -> Any:
        found = tuple(each for each in self.tags.values() if not clusters or each.cluster in clusters)
        return document_of([Survey("gamma", Instant(0), found)])

    def clean(self, tag: str, cluster: str | None, timeout: float) -> Any:
        if not timeout:
            self.begun.append(tag)
            self.most_begun = max(self.most_begun, len(self.begun))
            return {"tag": tag, "cluster": cluster, "state": "cleaning"}
        self.begun.remove(tag)
        del self.tags[tag]
        return {"tag": tag, "cluster": cluster, "state": "cleaned"}


def tags(count: int, store: InstanceId = OTHER, **fields: Any) -> list[UnknownTag]:
    described = {"directory": True, "ended": True, "age_s": 3e6} | fields
    return [
        UnknownTag(
            cluster="gamma", tag=Tag(tag_of(store, AttemptId(JobId(1 + job), 0, 1))), own=store == OWN, **described
        )
        for job in range(count)
    ]


def koala(monkeypatch: pytest.MonkeyPatch, koalad: Koalad, *arguments: str, typed: str = "") -> tuple[int, str, str]:
    monkeypatch.setattr(clean, "Grid", koalad)
    answer = CliRunner().invoke(app, list(arguments), input=typed)
    return answer.exit_code, answer.stdout, answer.stderr


def test_a_store_with_many_tags_has_one_row_for_each_age_and_few_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    late = tags(1400)[-1]
    koalad = Koalad([*tags(1399), *tags(1, OWN, age_s=5.0)])
    koalad.tags[str(late.tag)] = UnknownTag(cluster="gamma", tag=late.tag, own=False, batch_id="17", state="running")
    status, printed, _ = koala(monkeypatch, koalad, "status", "--unknown")
    assert status == 0
    lines = printed.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["STORE", "AGE", "TAGS", "MAY", "RUN", "CLUSTERS"],
        ["abcde", "(this", "one)", "under", "1d", "1", "0", "gamma"],
        ["gpetb", "over", "30d", "1,399", "0", "gamma"],
        ["gpetb", "unknown", "1", "1", "gamma"],
    ]
    assert late.tag in lines[6], "what may run is listed first"
    assert len(lines) == 4 + 1 + 1 + 20 + 1
    assert lines[-1] == "… and 1,381 more; `koala status --unknown --json` has all"


def test_a_store_is_cleaned_as_a_whole_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    koalad = Koalad([*tags(120), *tags(3, InstanceId("zzzzz"))])
    status, printed, _ = koala(monkeypatch, koalad, "clean", "--store", "gpetb", "--ended", "--yes")
    assert (status, printed) == (0, "120 tags are cleaned up\n")
    assert koalad.most_begun == clean._AT_A_TIME
    assert {each.instance for each in koalad.tags.values()} == {"zzzzz"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--store", "gpetb", "--ended"], "The store gpetb may be in use: 1 tag of it may run", id="runs"),
        pytest.param(["--store", "abcde", "--ended"], "abcde is this store", id="this one"),
        pytest.param(["--store", "nobod", "--ended"], "has an unknown tag of a store nobod", id="no tags"),
        pytest.param(["--store", "gpetb"], "--ended belongs to it", id="not only what has ended"),
        pytest.param(["kgpetb000020001", "--ended"], "--ended belongs to it", id="no store"),
        pytest.param(["kgpetb000020001", "--store", "gpetb", "--ended"], "Either tags", id="both"),
        pytest.param([], "Either tags", id="neither"),
    ],
)
def test_a_store_that_may_be_in_use_is_not_cleaned(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    koalad = Koalad([*tags(3)[:2], *tags(3, heartbeat_age_s=5.0, ended=False)[2:], *tags(1, OWN)])
    status, printed, errors = koala(monkeypatch, koalad, "clean", *arguments, "--yes")
    assert (status, printed) == (2, "")
    assert message in errors.replace("\n", " ")
    assert len(koalad.tags) == 4
    assert koalad.begun == []
