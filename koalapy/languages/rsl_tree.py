"""The syntax tree of RSL: requests, relations and values, each with its offset in the text."""

from dataclasses import dataclass, field
from enum import StrEnum


class Operator(StrEnum):
    """The way in which a request combines its parts."""

    CONJUNCTION = "&"
    MULTIREQUEST = "+"
    MULTISTAGE = "*"
    DISJUNCTION = "|"


@dataclass(frozen=True, slots=True)
class Text:
    """A word or quoted text, as it stands for itself."""

    text: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A reference `$(NAME)` or `$(NAME default)`. `parts`: what stands between its parentheses."""

    parts: tuple["Value", ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Joined:
    """Two or more texts and variables that are concatenated."""

    parts: tuple[Text | Variable, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Listed:
    """Values in parentheses."""

    values: tuple["Value", ...]
    at: int = field(default=0, compare=False)


Value = Text | Variable | Joined | Listed


@dataclass(frozen=True, slots=True)
class Relation:
    """An attribute, one of `= != < <= > >=`, and one or more values."""

    attribute: str
    operator: str
    values: tuple[Value, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compound:
    """A request with an operator, and one or more parts in parentheses."""

    operator: Operator
    parts: tuple["Specification", ...]
    at: int = field(default=0, compare=False)


Specification = Relation | Compound
