"""Which further batch queues a waiting component enters, so that it starts where processors become free first.

A candidate policy is `(queues, most) -> clusters`: at most `most` of the queues, by the names of their clusters, the
one to be entered first at the front.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The batch queue of a cluster that would take the component, as the last measurement shows it.

    `waiting`: others' jobs in it. `backlog`: processors of koalapy's jobs that wait in it, candidates included.
    `processors`: of the whole cluster.
    """

    cluster: str
    waiting: int
    backlog: int
    processors: int


CandidatePolicy = Callable[[Sequence[Queue], int], Sequence[str]]


def shortest_queues(queues: Sequence[Queue], most: int) -> Sequence[str]:
    """Enter the queues in which the fewest jobs of others wait, of these the ones with the least backlog."""
    in_order = sorted(queues, key=lambda queue: (queue.waiting, queue.backlog, -queue.processors))
    return [queue.cluster for queue in in_order[:most]]


def all_queues(queues: Sequence[Queue], most: int) -> Sequence[str]:
    """Enter every queue in the order of the grid file, as long as more may be entered."""
    return [queue.cluster for queue in queues[:most]]


def candidates_error(answer: Sequence[str], queues: Sequence[Queue], most: int) -> str:
    """Return the error in an answer, as the end of a sentence; '' if it is valid."""
    if not isinstance(answer, list | tuple):
        return f"it returned {answer!r}"
    known = {queue.cluster for queue in queues}
    unknown = [each for each in answer if each not in known]
    if unknown:
        return f"it chose {unknown[0]!r}, which is none of the queues"
    if len(set(answer)) < len(answer):
        return "it chose a queue twice"
    return f"it chose {len(answer)} queues, more than {most}" if len(answer) > most else ""
