"""Messages between a Launcher and its KCM. The wrapper carries them both ways and reads none of them.

`ranges` are lists of [first, last], both included. Instants are the node's clock. A Launcher repeats
unconfirmed results after every reconnect, after its Holding.
"""

from typing import Any, NamedTuple, Tuple, Type

from koalapy_adapters.messages.fields import Count, FewRanges, Instant, Name, Number, Rows


class Holding(NamedTuple):
    """The first message of every connection: all that is in the Launcher's hands and not done, running or not.

    What it has run and nobody has kept yet follows, as Ended; then a Pull, of 0 if it wants none, which says that all
    has been repeated. `slots`: how many it runs at a time.
    """

    ranges: FewRanges
    slots: Count = 0


class Pull(NamedTuple):
    """Ask for `wanted` parameters more, beyond those it holds. The newest Pull counts; one of 0 withdraws the last.

    `given`: so many have come with Gives over this connection when it said so. What was on its way then counts as part
    of `wanted`: still to give are `wanted` less what was given over this connection, plus `given`.
    """

    wanted: Count
    given: Count = 0


class Give(NamedTuple):
    """Parameters to run, at most as many as were pulled."""

    ranges: FewRanges


class Ended(NamedTuple):
    """Results, as in ParametersDone; a row that is none is passed over. `number` grows by 1 from 1 over its life."""

    number: Number
    results: Rows


class Kept(NamedTuple):
    """Every Ended up to this number is safe with koalad."""

    number: Count


class Back(NamedTuple):
    """Parameters that the Launcher returns and will not run any more; `begun` of them were running.

    The last message of a Launcher. It is also sent earlier, if parameters would wait long for their turn.
    """

    ranges: FewRanges
    begun: FewRanges


class Doing(NamedTuple):
    """How many parameters run, and when the newest was begun; once a second at most, when it has changed."""

    running: Count
    newest_at: Instant


class Suspect(NamedTuple):
    """Report that all parameters so far failed at once. The Launcher keeps the results and waits for Trusted."""

    host: Name


class Trusted(NamedTuple):
    """Let the Launcher go on: the program is at fault, not the node."""


MESSAGES: Tuple[Type[Any], ...] = (Holding, Pull, Give, Ended, Kept, Back, Doing, Suspect, Trusted)
