"""What every documented answer is made of, and how an endpoint says which is its own."""

from typing import Any

from pydantic import BaseModel, ConfigDict

INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


def answering(model: type[BaseModel]) -> dict[str, Any]:
    """For an endpoint whose answer is this; it is not built a second time to be checked."""
    return {"response_model": None, "responses": {200: {"model": model}}}
