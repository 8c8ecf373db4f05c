"""Messages between a Launcher and its KCM. The wrapper carries them both ways and reads none of them.

`ranges` are lists of [first, last], both included. Instants are the node's clock. A Launcher repeats
unconfirmed results after every reconnect, after its ParametersHeld.
"""

from typing import Any, NamedTuple, Tuple, Type

from koalapy_adapters.messages.fields import Count, FewRanges, Instant, Name, Number, Rows


class ParametersHeld(NamedTuple):
    """Report the parameters that the Launcher holds and has not run to their end. The first message of a connection.

    ResultsReported follows for each batch of results that is not committed yet. Then a PullParameters, of 0 if the
    Launcher wants none, states that everything has been repeated. `slots`: how many parameters it runs at a time.
    """

    ranges: FewRanges
    slots: Count = 0


class PullParameters(NamedTuple):
    """Ask for `wanted` parameters beyond those that the Launcher holds.

    The newest PullParameters counts; one of 0 withdraws the last. `given`: the parameters that had come over this
    connection when the message was sent. Those on their way then count as part of `wanted`: the KCM still has to send
    `wanted` + `given` less all that it has fed over this connection.
    """

    wanted: Count
    given: Count = 0


class FeedParameters(NamedTuple):
    """Run these parameters, at most as many as were pulled."""

    ranges: FewRanges


class ResultsReported(NamedTuple):
    """Results, as in ParametersEnded; a row that is no result is ignored. A Launcher numbers its batches from 1."""

    number: Number
    results: Rows


class ResultsCommitted(NamedTuple):
    """koalad has committed every ResultsReported up to this number."""

    number: Count


class ParametersGivenUp(NamedTuple):
    """Parameters that the Launcher returns and will not run any more; `begun` of them were running.

    The last message of a Launcher. It is also sent earlier, if parameters would wait long for their turn.
    """

    ranges: FewRanges
    begun: FewRanges


class ProgressReported(NamedTuple):
    """How many parameters run, and when the newest was begun; once a second at most, when it has changed."""

    running: Count
    newest_at: Instant


class NodeSuspected(NamedTuple):
    """All parameters so far failed at once. The Launcher keeps the results and waits for LauncherTrusted."""

    host: Name


class LauncherTrusted(NamedTuple):
    """Let the Launcher go on: the program is at fault, not the node."""


MESSAGES: Tuple[Type[Any], ...] = (
    ParametersHeld,
    PullParameters,
    FeedParameters,
    ResultsReported,
    ResultsCommitted,
    ParametersGivenUp,
    ProgressReported,
    NodeSuspected,
    LauncherTrusted,
)
