"""Questions that a login asks: a second factor, a password, the passphrase of a key."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from koalapy_adapters.errors import ClusterError

LOGIN = "Answer it with `koala login`; the connection is then kept open for as long as it lasts."


class Prompt(NamedTuple):
    """One thing to answer. `echo`: what is typed may be seen."""

    text: str
    echo: bool = False


class Question(NamedTuple):
    """Prompts that are answered together, as their server words them. There may be none: then it is a notice."""

    title: str
    instructions: str
    prompts: tuple[Prompt, ...]


class Asker(Protocol):
    """Whoever passes questions on to a person."""

    def present(self) -> bool:
        """Whether a person is there. If not, nothing is begun that would ask: it might ring their telephone."""
        ...

    def ask(self, question: Question) -> Sequence[str]:
        """An answer for each prompt. Blocks for as long as a person may take; any thread. Raises BatchError."""
        ...


class Nobody:
    """No person is there, ever."""

    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Sequence[str]:
        raise ClusterError("asks", "A question was asked where nobody can answer it.", LOGIN)
