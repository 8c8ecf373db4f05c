"""The example of docs/sweeps.md, played as it is written there."""

import re
from pathlib import Path

import pytest
from shares_play import Play

from koalapy.policies.fairshare import EQUIPARTITION_ALL, EQUIPARTITION_PERSITE
from koalapy.policies.shares import FairShare

PAGE = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text()
CLUSTERS = {"vu": 8, "delft": 6, "leiden": 4}
RUNNERS = "ABC"


def table(policy: str) -> list[list[str]]:
    """The rows after the line that names the policy: what happens, and each runner's nodes."""
    rows = PAGE.split(f"With `{policy}`:")[1].split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def shown(nodes: dict[str, int] | None) -> str:
    if nodes is None:
        return ""
    counts = [nodes.get(cluster, 0) for cluster in CLUSTERS]
    return f"{' '.join(map(str, counts))} = {sum(counts)}"


@pytest.mark.parametrize(
    ("name", "policy"),
    [("equipartition-persite", EQUIPARTITION_PERSITE), ("equipartition-all", EQUIPARTITION_ALL)],
)
def test_it_goes_as_the_page_has_it(name: str, policy: FairShare) -> None:
    play = Play(policy, dict(CLUSTERS))
    rows = table(name)
    assert len(rows) == 8
    for event, *expected in rows:
        play.happens(event)
        assert [shown(play.holds.get(runner)) for runner in RUNNERS] == expected, event


def test_the_page_names_the_nodes_of_each_cluster() -> None:
    for name, nodes in CLUSTERS.items():
        assert re.search(rf"\b{nodes} (nodes )?of\s`{name}`", PAGE)
