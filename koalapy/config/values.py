"""Types of the grid file's values: names of grids, batch systems and policies, connections, paths, the store."""

import ipaddress
import posixpath
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema

from koalapy.config.connect import ConnectError, parse_connects
from koalapy.model.textfile.fields import Line, as_line, as_list, one_of, wrong
from koalapy.model.textfile.words import shown, use_known

_SHORTEST_TOKEN = 16
Lines = Annotated[tuple[Line, ...], Field(strict=False), BeforeValidator(as_list)]
_ONE_CONNECTION = {"type": "string", "pattern": r"^(ssh://|local:$|docker://|command:)"}
LONGEST_NAME = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*", re.IGNORECASE | re.ASCII)


class Relay(StrEnum):
    """How compute nodes reach their head node."""

    TCP = "tcp"
    FILES = "files"


def _known_word(value: object, known: Any, what: str) -> str:
    text = as_line(value)
    if known is not None and text not in known:
        raise wrong(f"is {shown(text)}, no {what}", use_known(text, sorted(known)), f"unknown_{what.replace(' ', '_')}")
    return text


def registered_word(group: str, what: str) -> BeforeValidator:
    """Return a validator for the name of a policy that is registered under this group (see read_grid)."""

    def read(value: object, info: ValidationInfo) -> str:
        policies = info.context and info.context.get("policies")
        return _known_word(value, policies and policies.get(group), what)

    return BeforeValidator(read)


def _batch_system(value: object, info: ValidationInfo) -> str:
    return _known_word(value, info.context and info.context.get("batch_systems"), "batch system")


def _queueing(value: object, info: ValidationInfo) -> str:
    return _known_word(value, info.context and info.context.get("queueing"), "queueing policy")


def _placement(value: object, info: ValidationInfo) -> str:
    return _known_word(value, info.context and info.context.get("placement"), "placement policy")


def _connect(value: object) -> tuple[str, ...]:
    """Return one connection or several to equivalent head nodes. Raises an error of the file."""
    texts = tuple(as_line(each) for each in value) if isinstance(value, list | tuple) else (as_line(value),)
    if not texts:
        raise wrong("names no head node", "Write one, or several in brackets.", "bad_connection")
    for text in texts:
        _check_connection((text,), f" ({shown(text, quote='')})")
    _check_connection(texts, "")
    return texts


def _check_connection(texts: tuple[str, ...], quoted: str) -> None:
    try:
        parse_connects(texts)
    except ConnectError as error:
        what = error.what if "password" in error.what else f"{error.what}{quoted}"
        raise wrong(what, error.advice, "bad_connection") from error


def _path(text: str) -> str:
    if not text.startswith(("/", "~/")) or text.endswith("/"):
        raise wrong(f"is {shown(text)}, no absolute path of a file", "Begin it with / or ~/.")
    return text


def _config_file(text: str) -> str:
    return text if text == "none" else _path(text)


def _visible(path: str) -> str:
    if not path.startswith("/") or path == "/" or ":" in path or posixpath.normpath(path) != path:
        raise wrong("is not the path of a directory below /", "Write an absolute path without `.`, `..` and `:`.")
    return path


def _directory(text: str) -> str:
    path = text.rstrip("/")
    if not text.startswith(("/", "~/")) or path in ("", "~"):
        raise wrong(
            f"is {shown(text)}, no absolute path", "Write the directory's path on the cluster, from / or ~/ on."
        )
    return path


def _python(text: str) -> str:
    if "/" in text and not text.startswith("/"):
        raise wrong(f"is {shown(text)}, a relative path", "Write a name to look up on the PATH, or an absolute path.")
    return text


def _drmaa(text: str) -> str:
    if text in ("off", "auto") or text.startswith("/"):
        return text
    raise wrong(f"is {shown(text)}", "Write off, auto, or the absolute path of a libdrmaa.")


def _token(text: str) -> str:
    if len(text) < _SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        what = f"has fewer than {_SHORTEST_TOKEN} characters, or others than letters, digits and signs"
        raise wrong(what, "Write a long random one: `openssl rand -hex 24` makes one.")
    return text


def _store(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if text == "sqlite" or (separator and rest and scheme.partition("+")[0] in ("sqlite", "postgresql")):
        return text
    raise wrong(
        f"begins with {shown(scheme)}, which is not a supported store",
        "Use sqlite, or a URL that starts with sqlite:// or postgresql://.",
    )


def _networks(value: object) -> tuple[str, ...]:
    """Return networks or addresses in CIDR notation, from one text or a list. Raises an error of the file."""
    texts = tuple(as_line(each) for each in value) if isinstance(value, list | tuple) else (as_line(value),)
    if not texts:
        raise wrong("names no network", "Write one such as 10.1.0.0/16, several in brackets, or remove the key.")
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            what = f"has {shown(text)}, no network in CIDR notation ({error})"
            raise wrong(what, "Write one such as 10.1.0.0/16 or fd00:1::/64, or several in brackets.") from error
    return texts


Networks = Annotated[
    tuple[str, ...],
    BeforeValidator(_networks),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
RelayKind = Annotated[Relay, one_of(Relay)]
Drmaa = Annotated[Line, AfterValidator(_drmaa)]
Token = Annotated[Line, AfterValidator(_token)]
StoreUrl = Annotated[Line, AfterValidator(_store)]
Queueing = Annotated[str, BeforeValidator(_queueing), WithJsonSchema({"type": "string"})]
Placement = Annotated[str, BeforeValidator(_placement), WithJsonSchema({"type": "string"})]
BatchSystem = Annotated[str, BeforeValidator(_batch_system), WithJsonSchema({"type": "string"})]
Connect = Annotated[
    tuple[str, ...],
    BeforeValidator(_connect),
    WithJsonSchema({"anyOf": [_ONE_CONNECTION, {"type": "array", "items": _ONE_CONNECTION, "minItems": 1}]}),
]
ConfigFile = Annotated[Line, AfterValidator(_config_file)]
File = Annotated[Line, AfterValidator(_path)]
Directory = Annotated[Line, AfterValidator(_directory)]
VisibleDirectory = Annotated[Line, AfterValidator(_visible)]
Python = Annotated[Line, AfterValidator(_python)]


def is_name(text: str) -> bool:
    """Return whether the text is a valid name."""
    return bool(_NAME.fullmatch(text)) and len(text) <= LONGEST_NAME


def as_name(value: object) -> str:
    """Return a name of a grid, cluster or network, which can be part of a path, a host name and a table.

    Raises an error of the file if it is not valid.
    """
    text = as_line(value)
    if not _NAME.fullmatch(text):
        advice = "Use letters, digits, - and _, and begin with a letter or digit."
        raise wrong(f"is {shown(text)}, which is not a valid name", advice, "bad_name")
    if len(text) > LONGEST_NAME:
        raise wrong(f"has a name of {len(text)} characters", f"Use {LONGEST_NAME} or fewer.", "bad_name")
    return text


def check_names_differ(names: Iterable[str]) -> None:
    """Raises an error of the file for two names that differ in their capitals only."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise wrong(
                f"differs from {other} in its capitals only", "Rename one of the two.", "duplicate_key", at=(name,)
            )


GridName = Annotated[
    str,
    BeforeValidator(as_name),
    WithJsonSchema(
        {"type": ["string", "integer"], "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$", "maxLength": LONGEST_NAME}
    ),
]
