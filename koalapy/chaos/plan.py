"""The actions of a seed: their kinds and times. Each has a random seed of its own, so that any can be removed."""

from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import NamedTuple

from koalapy.world.random_streams import stream

EVENTS = 5_000  # of one run before healing, by default
QUIET_GAP, FAULTY_GAP = 60, 14  # mean number of events between two actions
SHORTEST, LONGEST = 150, 900  # events of one phase


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
