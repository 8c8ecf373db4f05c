"""Whether Launchers that have ended may be cancelled, which ends them sooner: not where a site has something run then.

As a real Grid Engine told it of a job in `smp`, a site without any; then with each of the things that would run.
"""

import asyncio
from pathlib import Path

import pytest
from koalapy_adapters.batch import sge, slurm
from koalapy_adapters.batch.protocol import Site
from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.commands import BatchSystem
from koalapy_adapters.kcm.deeds import Deeds
from koalapy_adapters.kcm.directories import Directories
from koalapy_adapters.kcm.hands import Hands
from koalapy_adapters.kcm.running import Handle, Ran
from koalapy_adapters.messages import ClusterConfig

TOLD = (Path(__file__).parent / "samples" / "sge" / "unattended.out").read_text()
NOBODYS = Result([], 0, TOLD, "")


def changed(name: str, value: str) -> str:
    """With another value in the last place where it is told."""
    head, _, tail = TOLD.rpartition(f"\n{name} ")
    return f"{head}\n{name} {value}\n{tail.partition(chr(10))[2]}"


def test_nothing_of_the_site_runs_after_jobs_of_one_that_has_configured_nothing() -> None:
    assert sge.parse_unattended(NOBODYS)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(changed("epilog", "root@/opt/site/epilog.sh $job_id"), id="of a queue"),
        pytest.param(changed("epilog", "NONE,[c7=/opt/site/epilog.sh]"), id="of a queue on one host"),
        pytest.param(changed("epilog", "NONE,[a-host-with-a-long-name=/opt/site/epilog.sh], \\"), id="over two lines"),
        pytest.param(TOLD.replace("epilog                       none", "epilog /opt/epilog", 1), id="of all hosts"),
        pytest.param(TOLD + "#c7:\nepilog    /opt/site/epilog.sh\n", id="of one host"),
        pytest.param(changed("terminate_method", "/opt/site/end.sh"), id="a way to end jobs"),
        pytest.param(changed("stop_proc_args", "/opt/site/stopmpi.sh"), id="of the parallel environment"),
    ],
)
def test_something_of_the_site_runs_after_its_jobs(told: str) -> None:
    assert told != TOLD
    assert not sge.parse_unattended(Result([], 0, told, ""))


@pytest.mark.parametrize("answer", [("", 0), (TOLD[: TOLD.index("\nqname")], 0), (TOLD, 1), ("", 127)])
def test_who_has_not_heard_all_takes_it_that_something_runs(answer: tuple[str, int]) -> None:
    assert not sge.parse_unattended(Result([], answer[1], answer[0], ""))


class Head:
    """Of a site that answers so, whatever it is asked; what it was told to cancel."""

    def __init__(self, answer: Result) -> None:
        self.answer = answer
        self.asked, self.cancelled = 0, list[list[str]]()

    def run(self, argv: list[str], timeout: float, handle: Handle | None) -> Ran:
        if argv[0] == "sh":
            self.asked += 1
            return Ran(self.answer._replace(argv=argv), 0)
        self.cancelled.append(sorted(argv[1:]))
        return Ran(Result(argv, 0, "", ""), 0)


def hasten(head: Head, root: Path, *batch_ids: str, dialect: object = sge) -> None:
    batch = BatchSystem(dialect, Site("someone"), runner=head.run)  # type: ignore[arg-type]
    hands = Hands(Deeds(ClusterConfig("here", "sge"), batch, Directories(str(root), "abcde", "here", 1), lambda: 0))

    async def all_of_them() -> None:
        await asyncio.gather(*(hands.hasten(each) for each in batch_ids))

    asyncio.run(all_of_them())


def test_launchers_that_end_together_are_hastened_by_one_command(tmp_path: Path) -> None:
    head = Head(NOBODYS)
    hasten(head, tmp_path, "7", "8", "9")
    assert (head.asked, head.cancelled) == (1, [["7", "8", "9"]])


def test_where_something_runs_afterwards_nothing_is_cancelled(tmp_path: Path) -> None:
    head = Head(Result([], 0, changed("epilog", "/opt/site/epilog.sh"), ""))
    hasten(head, tmp_path, "7")
    assert (head.asked, head.cancelled) == (1, [])


def test_where_it_cannot_be_asked_nothing_is_cancelled(tmp_path: Path) -> None:
    head = Head(Result([], None, "", ""))
    hasten(head, tmp_path, "7")
    assert (head.asked, head.cancelled) == (1, [])


def test_batch_systems_that_notice_by_themselves_are_not_asked(tmp_path: Path) -> None:
    head = Head(NOBODYS)
    hasten(head, tmp_path, "7", dialect=slurm)
    assert (head.asked, head.cancelled) == (0, [])
