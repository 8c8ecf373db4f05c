"""Messages between a wrapper and its KCM over the relay, beside Report, Release and PutKey."""

from typing import Any, Dict, NamedTuple, Tuple, Type

RELAY_PROTOCOL = 3  # of the handshake and the seals; component.json states which one the attempt's wrapper uses

Json = Dict[str, Any]


class RelayHello(NamedTuple):
    """The wrapper's first message. `nonce`: hexadecimal digits, unpredictable."""

    protocol: int
    tag: str
    clock: int
    nonce: str


class RelayChallenge(NamedTuple):
    """The KCM's answer to any RelayHello; it reveals nothing. `nonce`: as in RelayHello, of the KCM."""

    clock: int
    nonce: str


class RelayProof(NamedTuple):
    """Proof that the wrapper knows its token and the KCM's secret: see handshake.wrapper_proof."""

    proof: str


class RelayWelcome(NamedTuple):
    """Accept the wrapper, and prove that the KCM knows both secrets too: see handshake.kcm_proof."""

    clock: int
    proof: str


class ReportMessage(NamedTuple):
    """A Report with instants of the node's clock; the KCM maps them to its own and sends it on."""

    report: Json


class Stop(NamedTuple):
    """KCM to wrapper: end the program (SIGTERM, grace, SIGKILL), write the exit record, and exit."""

    force: bool = False


class FromLauncher(NamedTuple):
    """Wrapper to KCM: a message of the Launcher (see messages.launcher), unchanged. Instants of the node's clock."""

    body: Json


class ToLauncher(NamedTuple):
    """KCM to wrapper: a message to the Launcher."""

    body: Json


class Heartbeat(NamedTuple):
    """Sign of life, sent both ways, so that each side notices when the other is gone."""


MESSAGES: Tuple[Type[Any], ...] = (
    RelayHello,
    RelayChallenge,
    RelayProof,
    RelayWelcome,
    ReportMessage,
    Stop,
    FromLauncher,
    ToLauncher,
    Heartbeat,
)
