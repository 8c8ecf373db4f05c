"""Groups of clusters: the search of the EU-CrossGrid paper, with its example (figure 2)."""

from dataclasses import replace

import pytest
from engine_play import component, make

from koalapy.broker.availability import Availability
from koalapy.broker.groups import Candidate, choices, fits, of_choice, rank_of, search
from koalapy.broker.suitability import EveryCluster, Ranks
from koalapy.cli.match import print_choices
from koalapy.information.kis import ClusterSummary
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.job import Choice
from koalapy.model.request import ComponentRequest
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.views.matching import choice

BEE, AOCE, ZEUS, OLD, LNGRID = "bee001.ific.uv.es", "aocegrid.uab.es", "zeus.cyf-kr.edu.pl", "old", "lngrid02.lip.pt"
# CE1 to CE5 of figure 2a; CE4 does not meet the requirements.
RANKS = {BEE: 1500.0, AOCE: 2000.0, ZEUS: 1500.0, LNGRID: 1000.0}
FREE = {BEE: 3, AOCE: 10, ZEUS: 3, OLD: 10, LNGRID: 3}
FIGURE_2B = """\
[Groups with 1 CEs]
[Rank=2000]
aocegrid.uab.es:2119/jobmanager-pbs-workq
freeCPUs = 10

[Groups with 2 CEs]
[Rank=1500]
zeus.cyf-kr.edu.pl:2119/jobmanager-pbs-workq
freeCPUs = 3
bee001.ific.uv.es:2119/jobmanager-pbs-workq
freeCPUs = 3
[Rank=1000]
bee001.ific.uv.es:2119/jobmanager-pbs-workq
freeCPUs = 3
lngrid02.lip.pt:2129/jobmanager-pbs-workq
freeCPUs = 3
"""
JOB = make(component(5, requirements="other.X", rank="other.AverageSI", spread=True))


class Ranked(EveryCluster):
    def __init__(self, ranks: dict[str, float | None]) -> None:
        self._ranks = dict(sorted(ranks.items(), key=lambda each: -(each[1] or 0)))

    def ranks(self, component: ComponentRequest) -> Ranks | None:
        return self._ranks


def summary(name: str, idle: int, total: int | None = None, **settings: object) -> ClusterSummary:
    size = idle if total is None else total
    state = ClusterState(measured_at=Instant(0), total=size, idle=idle, ours=0, others=size - idle, waiting_local=0)
    made = ClusterSettings(name=name, batch="pbs", **settings)  # type: ignore[arg-type]
    return ClusterSummary(
        name=name, settings=made, total=size, idle=idle, committed=0, backlog=0, trouble=None, state=state
    )


def test_the_example_of_the_paper() -> None:
    """Figure 2b: the groups, their ranks, the free processors of their members, and the order of the groups."""
    room = Availability(summary(name, idle) for name, idle in FREE.items())
    found = choices(JOB, room, Ranked(dict(RANKS)))
    listed = [(each.rank, [name for name, _ in each.clusters]) for each in found]
    assert listed == [(2000, [AOCE]), (1500, [ZEUS, BEE]), (1000, [BEE, LNGRID])]
    assert [sum(FREE[name] for name, _ in each.clusters) for each in found] == [10, 6, 6]


def test_the_example_is_printed_as_in_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    """Figure 2b to the letter, with the addresses of its computing elements."""
    room = Availability(summary(name, idle) for name, idle in FREE.items())
    addresses = {BEE: "2119", AOCE: "2119", ZEUS: "2119", LNGRID: "2129"}
    documents = [choice(each, FREE) for each in choices(JOB, room, Ranked(dict(RANKS)))]
    for document in documents:
        for each in document["clusters"]:
            each["cluster"] += f":{addresses[each['cluster']]}/jobmanager-pbs-workq"
    print_choices(documents)
    assert capsys.readouterr().out == FIGURE_2B


def candidates(*free: int) -> list[Candidate]:
    """Candidates a, b, c, ... of descending ranks."""
    return [Candidate(chr(97 + place), each, 100.0 - place) for place, each in enumerate(free)]


@pytest.mark.parametrize(
    ("free", "least", "groups"),
    [
        ((), 1, []),
        ((4, 4), 4, ["a", "b"]),
        ((3, 3, 3), 5, ["ab", "ac"]),
        ((2, 2, 2), 5, ["abc"]),
        ((2, 2, 2, 2), 5, ["abc", "abd", "bcd"]),
        ((3, 1, 1, 2), 5, ["abc", "abd"]),  # ad is not found: when d came, a was in a group with b
        ((0, 5), 5, ["b"]),
        ((3, 0, 3), 5, ["ac"]),
        ((0, 3, 2), 5, ["bc"]),
        ((2, 2), 5, []),
    ],
)
def test_the_search_is_not_exhaustive(free: tuple[int, ...], least: int, groups: list[str]) -> None:
    """No larger group is made than one that is enough; a partial group stays as it was."""
    found = search(candidates(*free), least)
    names = ["".join(each.cluster for each in group) for group in found]
    assert names == groups


def test_a_cluster_that_completes_no_group_joins_each_partial_group_and_begins_one() -> None:
    found = search(candidates(2, 1, 1, 3), 4)
    # a -> [a]; b -> [ab], [b]; c completes ab -> abc, and joins b -> [bc]; it begins none. d completes ab and bc.
    assert ["".join(each.cluster for each in group) for group in found] == ["abc", "abd", "bcd"]


def test_fewer_clusters_come_first_and_then_the_higher_rank_of_the_lowest_member() -> None:
    found = search([Candidate("a", 3, 9.0), Candidate("b", 3, 8.0), Candidate("c", 5, 1.0)], 5)
    assert [[each.cluster for each in group] for group in found] == [["c"], ["a", "b"]]
    assert [rank_of(group) for group in found] == [1.0, 8.0]


def test_a_rank_that_is_no_number_comes_last() -> None:
    found = search([Candidate("a", 5, None), Candidate("b", 5, -7.0)], 5)
    assert [[each.cluster for each in group] for group in found] == [["b"], ["a"]]


def test_processors_are_taken_in_the_order_of_ranks() -> None:
    room = Availability([summary("a", 3), summary("b", 4)])
    (found,) = choices(JOB, room, Ranked({"a": 1.0, "b": 2.0}))
    assert found == Choice((("b", 4), ("a", 1)), 1.0)
    parts = of_choice(JOB, found).components
    assert [(each.cluster, each.processors, each.spread) for each in parts] == [("b", 4, False), ("a", 1, False)]


def test_a_group_is_of_one_network_unless_its_components_do_not_communicate() -> None:
    room = Availability([summary("a", 3, network="one"), summary("b", 3, network="two")])
    ranks = Ranked({"a": 2.0, "b": 1.0})
    assert choices(JOB, room, ranks) == ()
    assert choices(make(*JOB.components, communication=False), room, ranks) == (Choice((("a", 3), ("b", 2)), 1.0),)


def test_a_job_that_is_not_spread_has_single_clusters_as_choices() -> None:
    room = Availability([summary("a", 5), summary("b", 4), summary("c", 9)])
    job = make(component(5, rank="other.X"))
    assert choices(job, room, Ranked({"a": 1.0, "b": 3.0, "c": 2.0})) == (
        Choice((("c", 5),), 2.0),
        Choice((("a", 5),), 1.0),
    )


def test_whole_nodes_are_counted_as_they_are_taken() -> None:
    room = Availability([summary("a", 7, exclusive=True, processors_per_node=4), summary("b", 3)])
    (found,) = choices(JOB, room, Ranked({"a": 2.0, "b": 1.0}))
    assert found.clusters == (("a", 4), ("b", 1))


def test_a_choice_that_was_made_before_fits_or_not() -> None:
    found = Choice((("a", 3), ("b", 2)), 1.0)
    assert fits(JOB, found, Availability([summary("a", 3), summary("b", 2)]))
    assert not fits(JOB, found, Availability([summary("a", 3), summary("b", 1, 9)]))
    assert not fits(JOB, found, Availability([summary("a", 3)]))


def test_a_group_has_no_cluster_that_takes_no_component_like_it() -> None:
    """Programs on the pilot are isolated, and the queue of c takes no more than a minute."""
    isolated = summary("pilot~9", 8, isolation=())
    short = replace(summary("c", 8), walltime_limit=Duration(MINUTE))
    there = Availability([summary("a", 4), isolated, short, summary("b", 4)])
    wanted = replace(component(8, spread=True), executable="/home/me/program")
    found = choices(make(wanted), there, EveryCluster())
    assert {name for each in found for name, _ in each.clusters} == {"a", "b"}
    staged = replace(wanted, executable="./program", walltime=Duration(MINUTE))
    found = choices(make(staged), there, EveryCluster())
    assert [each.clusters for each in found][:2] == [(("pilot~9", 8),), (("c", 8),)]
