"""What a wrapper and its KCM say to each other over the relay, beside Report, Release and PutKey."""

from typing import Any, Dict, NamedTuple, Tuple, Type

Json = Dict[str, Any]


class Knock(NamedTuple):
    """The first message to the relay of a wrapper of an older release, and to the relay of such a KCM."""

    protocol: int
    tag: str
    token: str
    clock: int


class ProvenKnock(NamedTuple):
    """The wrapper's first message else. `proof`: that it knows its token and the KCM's secret; see proofs.of_knock.

    `nonce`: hexadecimal digits, unpredictable.
    """

    protocol: int
    tag: str
    clock: int
    nonce: str
    proof: str


class Enter(NamedTuple):
    """The relay lets in the wrapper that said Knock."""

    protocol: int
    clock: int


class ProvenEnter(NamedTuple):
    """The relay lets in the wrapper that said ProvenKnock. `proof`: that it knows both too; see proofs.of_enter."""

    protocol: int
    clock: int
    proof: str


class Say(NamedTuple):
    """A Report with instants of the node's clock; the KCM maps them to its own and sends it on."""

    report: Json


class Stop(NamedTuple):
    """KCM to wrapper: end the program (SIGTERM, grace, SIGKILL), write the record, and leave."""

    force: bool = False


class FromLauncher(NamedTuple):
    """Wrapper to KCM: what the Launcher says (see messages.launcher), as it is. Instants of the node's clock."""

    body: Json


class ToLauncher(NamedTuple):
    """KCM to wrapper: what the Launcher is told."""

    body: Json


class Beat(NamedTuple):
    """Either way, so that each side notices when the other is gone."""


MESSAGES: Tuple[Type[Any], ...] = (
    Knock,
    ProvenKnock,
    Enter,
    ProvenEnter,
    Say,
    Stop,
    FromLauncher,
    ToLauncher,
    Beat,
)
