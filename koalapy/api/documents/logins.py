"""How logins stand, as JSON."""

from koalapy.api.documents.document import Document
from koalapy.api.documents.reasons import reason
from koalapy.runtime.logins import LoginState


def login(state: LoginState) -> Document:
    question = state.question
    return {
        "cluster": state.cluster,
        "state": state.state,
        "trying": state.trying,
        "version": state.version,
        "reason": reason(state.reason) if state.reason else None,
        "notices": list(state.notices),
        "question": None
        if question is None
        else {
            "number": state.number,
            "title": question.title,
            "instructions": question.instructions,
            "prompts": [{"text": prompt.text, "echo": prompt.echo} for prompt in question.prompts],
        },
        "may_ask": state.may_ask,
    }
