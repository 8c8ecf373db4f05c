"""The API of logins: how each cluster's stands, and the way of an answer to the connection that asked for it."""

from typing import Annotated

from fastapi import FastAPI
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from koalapy.api import schemas
from koalapy.api.bodies import LONGEST_WAIT_S, Timeout, one_line
from koalapy.api.documents import Document, login
from koalapy.api.schemas.answer import answering
from koalapy.runtime.logins import Logins, LoginState


class LoginBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    present: bool = Field(default=True, description="a person is there to be asked")


def _one_line(answer: SecretStr) -> SecretStr:
    """Raises PydanticCustomError for an answer that would be two, or end early."""
    one_line(answer.get_secret_value())
    return answer


class AnswersBody(BaseModel):
    """They are passed on to the connection that asked, and kept nowhere."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(description="of the question")
    answers: list[Annotated[SecretStr, AfterValidator(_one_line)]] = Field(max_length=100)


def add_logins(app: FastAPI, logins: Logins) -> None:
    one, every_one = answering(schemas.LoginAnswer), answering(schemas.LoginsAnswer)

    @app.get("/v1/logins", **every_one)
    def every() -> Document:
        """How the login on each cluster stands."""
        return {"schema": "koala.logins/1", "logins": [login(each) for each in logins.views()]}

    @app.post("/v1/logins", **every_one)
    def try_all() -> Document:
        """Try those again that koalad has given up, with nobody to ask."""
        logins.begin_all()
        return {"schema": "koala.logins/1", "logins": [login(each) for each in logins.views()]}

    @app.get("/v1/clusters/{cluster}/login", **one)
    def look(cluster: str, version: int = -1, timeout: Timeout = 0) -> Document:
        """How it stands once that is another than at `version`, or after `timeout` seconds."""
        return _one(logins.wait(cluster, version, min(timeout, LONGEST_WAIT_S)))

    @app.post("/v1/clusters/{cluster}/login", **one)
    def begin(cluster: str, body: LoginBody | None = None) -> Document:
        """Log in at once, if it is not connected. What the login asks appears here."""
        logins.of(cluster).begin(body is None or body.present)
        return _one(logins.of(cluster).view())

    @app.post("/v1/clusters/{cluster}/login/answers", **one)
    def answer(cluster: str, body: AnswersBody) -> Document:
        """Answer the question that waits: each of its prompts, in order."""
        logins.of(cluster).answer(body.number, [each.get_secret_value() for each in body.answers])
        return _one(logins.of(cluster).view())

    @app.delete("/v1/clusters/{cluster}/login", **one)
    def leave(cluster: str) -> Document:
        """The person has gone: what waits for an answer is given up."""
        logins.of(cluster).leave()
        return _one(logins.of(cluster).view())


def _one(state: LoginState) -> Document:
    return {"schema": "koala.login/1", "login": login(state)}
