"""The actions of a seed: their kinds and times, and the shortest list of them that still breaks a promise.

Each action has a random seed of its own, so that any can be removed.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from koalapy.world.random_streams import stream

if TYPE_CHECKING:  # the command line needs the options of a run, and no world
    from koalapy.world.world import World

Act = Callable[["World", Random], None]

EVENTS = 5_000  # of one run before the end of all faults, by default
QUIET_GAP, FAULTY_GAP = 60, 14  # mean number of events between two actions
SHORTEST, LONGEST = 150, 900  # events of one phase
TRIES = 200  # to shorten a list: runs are long, and the first few tries remove most actions

T = TypeVar("T")


class Action(NamedTuple):
    """An action on the world after `at` events; its details are drawn from its own `seed`."""

    at: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}"


def plan(
    seed: int,
    events: int,
    user_actions: Mapping[str, int],
    faults: Mapping[str, int],
    mixed: bool = True,
    spread: int = 1,
) -> list[Action]:
    """Draw the actions of a run of so many events, in order; kinds are drawn by their weights.

    Phases without faults, in which work gets done, alternate with phases full of them. `mixed`: each seed has its own
    mixture of faults without many of them, so that each fault also occurs without most others. `spread`: so many times
    as many events lie between two actions, and in a phase.
    """
    rng = stream(seed, "chaos/plan")
    mixture = {kind: weight * (rng.choice((0, 0, 1, 1, 3)) if mixed else 1) for kind, weight in faults.items()}
    drawn = _drawn(rng, -(-events // spread), dict(user_actions), mixture)
    return [each._replace(at=each.at * spread) for each in drawn]


def _drawn(rng: Random, events: int, user_actions: dict[str, int], faults: dict[str, int]) -> Iterator[Action]:
    at, phase_ends, faulty = 0, 0, True
    while True:
        if at >= phase_ends:
            faulty = not faulty
            phase_ends = at + rng.randint(SHORTEST, LONGEST)
        at += 1 + int(rng.expovariate(1 / (FAULTY_GAP if faulty else QUIET_GAP)))
        if at >= events:
            return
        chosen = faults if faulty and any(faults.values()) and rng.random() < 0.6 else user_actions
        kind = rng.choices(list(chosen), list(chosen.values()))[0]
        yield Action(at, kind, rng.getrandbits(32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasional:
    """Actions that only some seeds have. All is drawn from a stream of its own, so that the other draws do not change.

    `stream`: its name. `seeds`: the share of all seeds that have them. `gap`: mean number of events between two.
    `acts`: each with its weight.
    """

    stream: str
    seeds: float
    gap: int
    acts: Mapping[str, tuple[Act, int]]

    @property
    def weights(self) -> dict[str, int]:
        return {name: weight for name, (_, weight) in self.acts.items()}

    def schedule(self, seed: int, events: int) -> list[Action]:
        """Draw the actions of a seed; most seeds have none. A longer run begins with those of a shorter one."""
        rng = stream(seed, self.stream)
        return list(draw_actions(rng, events, self.gap, self.weights)) if rng.random() < self.seeds else []


def draw_actions(rng: Random, events: int, gap: int, weights: Mapping[str, int]) -> Iterator[Action]:
    """Draw actions with `gap` events between two on average; their kinds are drawn by their weights."""
    at, kinds = 0, list(weights)
    while (at := at + 1 + int(rng.expovariate(1 / gap))) < events:
        kind = rng.choices(kinds, list(weights.values()))[0] if len(kinds) > 1 else kinds[0]
        yield Action(at, kind, rng.getrandbits(32))


def parse_only(text: str, count: int) -> list[int]:
    """Parse the numbers of `3,17,40-42`, each below `count`. Raises ValueError with a sentence."""
    numbers: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise ValueError(f"{part!r} names no actions; write them like 3,17,40-42")
        numbers += range(int(first), int(last or first) + 1)
    if numbers and max(numbers) >= count:
        raise ValueError(f"There is no action {max(numbers)}; this seed has actions 0 to {count - 1}")
    return sorted(set(numbers))


def parse_faults(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Parse the names of `node_lost,kcm killed`, each of them `known`. Raises ValueError with a sentence."""
    names = tuple(dict.fromkeys(part.strip().replace(" ", "_") for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise ValueError(f"There is no fault {name!r}; the faults are {', '.join(known)}")
    if not names:
        raise ValueError("No fault is named; write names like node_lost,kcm_killed")
    return names


def format_only(numbers: list[int]) -> str:
    """Format action numbers so that `parse_only` reads them back."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def shrink(items: Sequence[T], fails: Callable[[list[T]], bool], tries: int = TRIES) -> list[T]:
    """Return a part of `items`, in order, for which `fails` is true; `items` themselves must fail.

    It is the shortest one that was found within so many tries (ddmin: Zeller and Hildebrandt, 2002). With enough tries
    it is minimal: without any single item it does not fail.
    """
    shortest, parts = list(items), 2
    budget = _Budget(fails, tries)
    if budget.fails([]):
        return []
    while len(shortest) > 1 and not budget.spent:
        smaller = _smaller(shortest, parts, budget)
        if smaller is not None:
            shortest, parts = smaller, max(2, parts - 1)
        elif parts >= len(shortest):
            break
        else:
            parts = min(len(shortest), 2 * parts)
    return shortest


class _Budget(Generic[T]):
    """Calls `fails` at most `tries` times."""

    def __init__(self, fails: Callable[[list[T]], bool], tries: int) -> None:
        self._fails, self._left = fails, tries

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def fails(self, items: list[T]) -> bool:
        """False once all tries are spent."""
        self._left -= 1
        return self._left >= 0 and self._fails(items)


def _smaller(items: list[T], parts: int, budget: _Budget[T]) -> list[T] | None:
    """Return `items` without one of so many parts, or None. The last part is tried first: late actions matter least."""
    bounds = [len(items) * part // parts for part in range(parts + 1)]
    for begin, end in reversed(list(itertools.pairwise(bounds))):
        rest = items[:begin] + items[end:]
        if begin < end and budget.fails(rest):
            return rest
    return None
