"""`notify` in job files and grid files: who is notified of which changes of a job, and how."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Self

import pydantic_core
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from koalapy.model.notification import (
    ENDS,
    LONGEST_ADDRESS,
    LONGEST_URL,
    MOST_RECIPIENTS,
    MOST_WORDS,
    Mail,
    Notify,
    NotifyOn,
    Program,
    Recipient,
    Webhook,
)
from koalapy.model.textfile.fields import Line, Section, Text, as_entries, as_list, one_of, wrong
from koalapy.model.textfile.words import shown

_WAYS = ("webhook", "mail", "command")
_ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\-][^\s@<>,;:\"()\[\]\\]*(@[^\s@<>,;:\"()\[\]\\]+)?")


def _webhook(text: str) -> str:
    """Return the URL. An error never quotes it, since it may hold a secret."""
    advice = "Write it like https://hooks.example/path."
    if len(text) > LONGEST_URL:
        raise wrong(f"has {len(text)} characters, more than {LONGEST_URL}", "Write a shorter URL.")
    if not text.isascii() or any(each.isspace() for each in text):
        raise wrong("has a space, or a character that is not ASCII", "Write such characters as %20 in the URL.")
    if not text.casefold().startswith(("http://", "https://")):
        raise wrong("does not begin with http:// or https://", advice)
    try:
        port = pydantic_core.Url(text).port
    except ValueError:
        raise wrong("is not a URL", advice) from None
    if port == 0:
        raise wrong("has the port 0", advice)
    return text


def _mail(text: str) -> str:
    if len(text) > LONGEST_ADDRESS or not _ADDRESS.fullmatch(text):
        raise wrong(f"is {shown(text)}, not a mail address", "Write one address alone, such as me@example.org.")
    return text


def _command(words: list[Any]) -> list[Any]:
    if not words:
        raise wrong("is empty", "Write the program and its arguments, such as [notify-send, koalapy].")
    if len(words) > MOST_WORDS:
        raise wrong(f"has {len(words)} words, more than {MOST_WORDS}", "Put them into a script.")
    return words


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command. Its arguments are never quoted, since they may hold secrets."""
    program = words[0]
    if not program.strip() or "\n" in program or ("/" in program and not program.startswith(("/", "~/"))):
        what = f"begins with {shown(program)}, which is neither a program's name nor an absolute path"
        raise wrong(what, "Begin it with / or ~/, or write a name that koalad finds on its PATH.")
    return words


def _changes(changes: list[Any]) -> list[Any]:
    if not changes:
        raise wrong("is empty, so that nobody would be notified", "Write such as [failed], or remove the entry.")
    return changes


Url = Annotated[
    Line, AfterValidator(_webhook), WithJsonSchema({"type": "string", "format": "uri", "pattern": "^https?://"})
]
Address = Annotated[Line, AfterValidator(_mail), WithJsonSchema({"type": "string", "minLength": 1})]


class NotifyEntry(Section):
    """A recipient, and the changes of a job of which it is notified."""

    webhook: Url | None = Field(default=None, description="http or https URL, to which JSON is posted", repr=False)
    mail: Address | None = Field(default=None, description="address, to which the host's sendmail delivers")
    command: (
        Annotated[
            tuple[Text, ...],
            Field(strict=False, json_schema_extra={"minItems": 1, "maxItems": MOST_WORDS}),
            BeforeValidator(lambda value: _command(as_list(value))),
            AfterValidator(_program),
        ]
        | None
    ) = Field(default=None, description="program and arguments, run on koalad's host without a shell", repr=False)
    on: Annotated[
        tuple[Annotated[NotifyOn, one_of(NotifyOn)], ...],
        Field(strict=False, json_schema_extra={"minItems": 1}),
        BeforeValidator(lambda value: _changes(as_list(value))),
    ] = Field(default=ENDS, description="changes: started, done, failed, cancelled; all but started")

    @model_validator(mode="after")
    def _check_one_way(self) -> Self:
        given = [way for way in _WAYS if getattr(self, way) is not None]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "has no recipient"
            raise wrong(what, "Write one of webhook, mail and command in each entry.", "wrong_recipient")
        return self

    @property
    def recipient(self) -> Recipient:
        """The recipient: a webhook, a mail address or a command."""
        if self.webhook is not None:
            return Webhook(url=self.webhook)
        if self.mail is not None:
            return Mail(address=self.mail)
        assert self.command is not None
        return Program(words=self.command)


def _entries(entries: list[Any]) -> list[Any]:
    if len(entries) > MOST_RECIPIENTS:
        raise wrong(
            f"has {len(entries)} entries, more than {MOST_RECIPIENTS}", "Notify one list of people.", "too_many"
        )
    return entries


NotifyEntries = Annotated[
    tuple[NotifyEntry, ...],
    Field(strict=False, json_schema_extra={"maxItems": MOST_RECIPIENTS}),
    BeforeValidator(lambda value: _entries(as_entries(value))),
]


def notify_of(entries: Sequence[NotifyEntry]) -> tuple[Notify, ...]:
    """Return the entries as the engine knows them. Entries for one recipient become one."""
    found: dict[Recipient, tuple[NotifyOn, ...]] = {}
    for each in entries:
        found[each.recipient] = tuple(dict.fromkeys((*found.get(each.recipient, ()), *each.on)))
    return tuple(Notify(to=to, on=on) for to, on in found.items())


def notify_mapping(found: Notify) -> dict[str, Any]:
    """Return the mapping from which the same entry is read again."""
    match found.to:
        case Webhook(url=url):
            way: dict[str, Any] = {"webhook": url}
        case Mail(address=address):
            way = {"mail": address}
        case Program(words=words):
            way = {"command": list(words)}
    return way | {"on": [str(each) for each in found.on]}
