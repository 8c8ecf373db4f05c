"""Questions that a login asks: a second factor, a password, the passphrase of a key."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from koalapy_adapters.errors import ClusterError

LOGIN = "Answer it with `koala login`; the connection is then kept open for as long as it lasts."


class Prompt(NamedTuple):
    """One prompt of a question. `echo`: the answer may be shown while it is typed."""

    text: str
    echo: bool = False


class Question(NamedTuple):
    """Prompts that are answered together, in the words of their server. Without prompts it is a notice."""

    title: str
    instructions: str
    prompts: tuple[Prompt, ...]


class Asker(Protocol):
    """Passes questions on to a person."""

    def present(self) -> bool:
        """Return whether a person is there. If not, no login method that asks is begun: it might ring a telephone."""
        ...

    def ask(self, question: Question) -> Sequence[str]:
        """Get an answer for each prompt.

        Blocks for as long as a person may take; any thread. Raises BatchError if there is none.
        """
        ...


class Nobody:
    """An asker without a person."""

    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Sequence[str]:
        """Raises ClusterError for every question."""
        raise ClusterError("asks", "A question was asked where nobody can answer it.", LOGIN)
