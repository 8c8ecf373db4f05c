"""What a Launcher and its KCM say to each other. The wrapper carries it both ways and reads none of it.

`ranges` are lists of [first, last], both included. Instants are the node's clock. What a Launcher has sent and has not
been told is kept, it sends again after every reconnect, after a Holding.
"""

from typing import Any, List, NamedTuple, Tuple, Type


class Holding(NamedTuple):
    """The first message of every connection: all that is in the Launcher's hands and not done, running or not.

    What it has run and nobody has kept yet follows, as Ended; then a Pull, of 0 if it wants none, which says that all
    has been repeated. `slots`: how many it runs at a time.
    """

    ranges: List[List[int]]
    slots: int = 0


class Pull(NamedTuple):
    """It could use so many more, beyond what it holds. The newest Pull counts; one of 0 takes back the last.

    `given`: so many have come with Gives over this connection when it said so. What was on its way then counts as part
    of `wanted`: still to give are `wanted` less what was given over this connection, plus `given`.
    """

    wanted: int
    given: int = 0


class Give(NamedTuple):
    """Parameters to run, at most as many as were pulled."""

    ranges: List[List[int]]


class Ended(NamedTuple):
    """Results, as in ParametersDone. `number` grows by 1 from 1 over the Launcher's life."""

    number: int
    results: List[List[Any]]


class Kept(NamedTuple):
    """Every Ended up to this number is safe with koalad."""

    number: int


class Back(NamedTuple):
    """What it will not run any more; `begun` of them were running. It holds them no longer.

    The last thing that a Launcher says; and said before, where what it holds would wait long for its turn.
    """

    ranges: List[List[int]]
    begun: List[List[int]]


class Doing(NamedTuple):
    """How many parameters run, and when the newest was begun; once a second at most, when it has changed."""

    running: int
    newest_at: int


class Suspect(NamedTuple):
    """All that it ran so far failed at once; it keeps the results to itself, and pulls nothing until it is trusted."""

    host: str


class Trusted(NamedTuple):
    """The program is to blame, not the node."""


MESSAGES: Tuple[Type[Any], ...] = (Holding, Pull, Give, Ended, Kept, Back, Doing, Suspect, Trusted)
