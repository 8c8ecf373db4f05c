"""The answers about logins."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import Answer
from koalapy.api.schemas.reasons import Reason


class Prompt(Answer):
    text: str
    echo: bool = Field(description="whether typed text may be shown")


class Question(Answer):
    """What a login asks, as its server words it."""

    number: int
    title: str
    instructions: str
    prompts: list[Prompt]


class Login(Answer):
    """How the login on a cluster stands."""

    cluster: str
    state: Literal["connected", "connecting", "asks", "unreachable"]
    trying: bool = Field(description="a login that a person began is not complete yet")
    version: int = Field(description="grows with every change")
    reason: Reason | None = Field(description="why it is not connected")
    notices: list[str] = Field(description="messages of the login that need no answer")
    question: Question | None = Field(description="question that waits for an answer")
    may_ask: bool = Field(description="a login of this kind can ask something")


class LoginAnswer(Answer):
    schema_: Literal["koala.login/1"] = Field(alias="schema")
    login: Login


class LoginsAnswer(Answer):
    schema_: Literal["koala.logins/1"] = Field(alias="schema")
    logins: list[Login]
