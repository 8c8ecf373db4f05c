"""Log in by the methods that the server allows, in the configured order: by key, or by a person's answers."""

from collections.abc import Callable, Sequence

import paramiko
from paramiko.ssh_exception import AuthenticationException, BadAuthenticationType, SSHException

from koalapy_adapters.connections.asking import LOGIN, Asker, Prompt, Question
from koalapy_adapters.connections.ssh_config import Resolved
from koalapy_adapters.connections.ssh_keys import candidates
from koalapy_adapters.errors import BatchError, ClusterError

OPENSSH = 'Or let your own OpenSSH connect, by `connect: "command:ssh -T HOST"`.'
ANSWER_S = 180.0  # a person's time, and the server's (LoginGraceTime is 120 s by default)
_METHODS = ("publickey", "keyboard-interactive", "password")


def log_in(transport: paramiko.Transport, where: str, resolved: Resolved, identity: str | None, asker: Asker) -> bool:
    """Log in. Returns whether a person was asked. Raises ClusterError if the server does not let us in.

    Its code is `asks` if a person must answer and none is there, `answer_refused` if an answer was wrong. Raises the
    asker's BatchError, too.
    """
    return _Login(transport, where, resolved, identity, asker).run()


class _Login:
    def __init__(
        self, transport: paramiko.Transport, where: str, resolved: Resolved, identity: str | None, asker: Asker
    ) -> None:
        self._transport, self._where, self._asker = transport, where, asker
        self._resolved, self._identity, self._user = resolved, identity, resolved.user
        self._questions = 0
        self._tried = 0
        self._partly = False  # a method was done, and more is wanted
        self._locked: list[str] = []
        self._failure: BatchError | None = None  # of whom was asked: raised where paramiko lets it through

    def run(self) -> bool:
        """Try one method after another. After partial success the server names the methods to try next."""
        allowed, tried = self._allowed(), set[str]()
        while allowed is not None:
            wanted = [each for each in self._resolved.methods if each in allowed and each not in tried]
            if not wanted:
                raise self._refused(allowed, tried)
            tried.add(wanted[0])
            further = _HOW[wanted[0]](self)
            if further is not None:
                allowed = further or None  # nothing further: we are in
                self._partly = True
        return self._questions > 0

    def _allowed(self) -> Sequence[str] | None:
        """Authentication methods that the server allows; None if it let us in without any."""
        try:
            self._transport.auth_none(self._user)
        except BadAuthenticationType as error:
            return list(error.allowed_types)
        except AuthenticationException:
            return list(_METHODS)
        except (SSHException, EOFError) as error:
            raise self._cut("it ends the login at once") from error
        return None

    # ---- each method: what the server requires further, [] for nothing; None if it failed

    def _by_key(self) -> Sequence[str] | None:
        for key in candidates(self._resolved, self._identity, self._unlock):
            self._tried += 1
            try:
                return list(self._transport.auth_publickey(self._user, key))
            except AuthenticationException:
                if not self._transport.is_active():
                    raise self._cut(f"it ended the login after {self._tried} keys") from None
            except (SSHException, EOFError) as error:
                if not self._transport.is_active():
                    raise self._cut(f"it ended the login after {self._tried} keys") from error
        return None

    def _by_answers(self) -> Sequence[str] | None:
        self._need_somebody()
        return self._answered(lambda: self._transport.auth_interactive(self._user, self._pass_on))

    def _by_password(self) -> Sequence[str] | None:
        self._need_somebody()
        prompt = Prompt(f"Password of {self._user} on {self._where}:")
        question = Question("", "", (prompt,))
        return self._answered(lambda: self._transport.auth_password(self._user, self._ask(question)[0], fallback=False))

    def _answered(self, method: Callable[[], Sequence[str]]) -> Sequence[str] | None:
        """Run a method that asks a person. Returns the further methods; None if the server does not have this one.

        A server that offers a method and then asks nothing does not have it.
        """
        self._transport.auth_timeout = ANSWER_S
        before = self._questions
        try:
            return list(method())
        except BadAuthenticationType:
            return None
        except (SSHException, EOFError, BatchError) as error:
            if self._failure is not None:
                raise self._failure from error
            if self._questions == before and self._transport.is_active():
                return None
            message = f"{self._where} does not accept what was answered for {self._user}."
            advice = "It is not tried again by itself: answer once more with `koala login`."
            raise ClusterError("answer_refused", message, advice) from error

    # ---- asking

    def _pass_on(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        """Answer the server's prompts, on paramiko's thread. A round without prompts is a notice, or the end."""
        question = Question(title, instructions, tuple(Prompt(text, bool(echo)) for text, echo in prompts))
        if not prompts and not title.strip() and not instructions.strip():
            return []
        return self._ask(question)

    def _ask(self, question: Question) -> list[str]:
        self._questions += 1
        try:
            answers = list(self._asker.ask(question))
        except BatchError as error:
            self._failure = error
            raise
        if len(answers) != len(question.prompts):
            self._failure = ClusterError("answer_refused", f"There were {len(answers)} answers.", "Answer each prompt.")
            raise self._failure
        return answers

    def _unlock(self, path: str) -> str | None:
        if not self._asker.present():
            self._locked.append(path)
            return None
        return self._ask(Question("", "", (Prompt(f"Passphrase of the key {path} (empty to leave it out):"),)))[0]

    def _need_somebody(self) -> None:
        """Raise ClusterError if no person is there, before a method is begun that would ask."""
        if not self._asker.present():
            keys = f"does not accept {self._keys()} and " if self._tried else ""
            what = "asks for a second factor" if self._partly else f"{keys}asks for a password or the like"
            raise self._asks(what)

    # ---- in words

    def _refused(self, allowed: Sequence[str], tried: set[str]) -> ClusterError:
        if self._locked:
            error = self._asks(f"may want the key {self._locked[0]}, which is locked by a passphrase")
            error.advice = f"Unlock it with `ssh-add {self._locked[0]}`, or with `koala login`. {OPENSSH}"
            return error
        if "publickey" not in tried or not set(allowed) <= set(_METHODS) | {"hostbased"}:
            return self._cut(f"it wants {' or '.join(allowed)}")
        return self._cut(f"it does not accept {self._keys()}" if self._tried else "there is no key to show")

    def _keys(self) -> str:
        return "the one key that was shown" if self._tried == 1 else f"any of {self._tried} keys"

    def _asks(self, what: str) -> ClusterError:
        return ClusterError("asks", f"{self._where} {what}, and nobody is there to answer.", LOGIN)

    def _cut(self, why: str) -> ClusterError:
        advice = f"Check `connect:` and `identity:` in the grid file, and the keys of your agent. {OPENSSH}"
        return ClusterError("authentication", f"{self._where} does not let {self._user} in: {why}.", advice)


_HOW: dict[str, Callable[[_Login], Sequence[str] | None]] = {
    "publickey": _Login._by_key,
    "keyboard-interactive": _Login._by_answers,
    "password": _Login._by_password,
}
