"""The bounds of a KCM on a lease, which its lender has started, and whose koalad is the borrower's.

The KCM runs under the lender's account, outside of all isolation.

Such a KCM serves the queue of the lease in the lease's directory, and nothing else. Whatever could start a process that
is not isolated is refused here: options of the batch system, probes, Launchers, and commands at the end of a stream.
Launchers are taken if the lender isolates no programs.
"""

import json
import os
import re
from typing import Any, List, Mapping, NamedTuple, Tuple

from koalapy_adapters.errors import RequestError
from koalapy_adapters.kcm.file_requests import SERVED
from koalapy_adapters.kcm.state.actions import Send
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages.fields import reader
from koalapy_adapters.messages.kcm import PutKey, Refused
from koalapy_adapters.messages.koalad import (
    Account,
    Acknowledge,
    Cancel,
    Clean,
    ClusterConfig,
    Dissolve,
    Examine,
    FeedSweep,
    Forget,
    RecallParameters,
    Release,
    SetSuspended,
    Submit,
    Tags,
    TrustLauncher,
    WatchCluster,
)
from koalapy_adapters.messages.streams import OpenStream, StreamReset, StreamState

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,99}")
_INSTANCE = re.compile(r"[0-9a-z]{5}")  # no longer one: it could be the name of another directory of koalapy
_TAKEN: Tuple[type, ...] = (
    Account, Acknowledge, Cancel, Clean, Dissolve, Examine, Forget, OpenStream, PutKey, Release, SetSuspended,
    StreamReset, StreamState, Submit, Tags, WatchCluster, *SERVED,
)  # fmt: skip
_FOR_SWEEPS: Tuple[type, ...] = (FeedSweep, RecallParameters, TrustLauncher)
_BATCH_FIELDS = ("processors", "walltime_s", "processors_per_node", "memory_per_processor", "exclusive", "lowest")
_LACKED = ("native", "probe", "gpus", "queue", "constraint", "avoid")
_OF_BORROWER = ("name", "poll", "orphan_timeout", "grace", "floor")


class Confinement(NamedTuple):
    """The bounds of one lease. `config`: the cluster as its lender describes it. `launchers`: whether it takes them."""

    config: ClusterConfig
    launchers: bool = False

    def configured(self, asked: ClusterConfig, instance: str) -> ClusterConfig:
        """Return the lender's description with the borrower's name and times. Raises RequestError for a bad name."""
        if not _NAME.fullmatch(asked.name) or not _INSTANCE.fullmatch(instance):
            raise RequestError("bad_name", "%r or %r is no name of a cluster or store." % (asked.name, instance))
        shared = os.path.abspath(self.config.shared or ".")  # below the lease's directory, in which the KCM was started
        return self.config._replace(shared=shared, **{key: getattr(asked, key) for key in _OF_BORROWER})

    def admit(self, message: Any) -> Any:
        """Return the message as it may be obeyed. Raises RequestError for one that may not."""
        if not isinstance(message, _TAKEN + (_FOR_SWEEPS if self.launchers else ())):
            raise _refused("%s is none of the orders" % type(message).__name__)
        if isinstance(message, OpenStream) and message.command:
            raise _refused("a command of another site is none of the things")
        if isinstance(message, Submit):
            _refuse_parts(message.batch, _LACKED)
            _refuse_parts(message.program, () if self.launchers else ("sweep",))
            return message._replace(batch={key: message.batch[key] for key in _BATCH_FIELDS if key in message.batch})
        return message


def read(text: str) -> Confinement:
    """Return the bounds that a lender has written: the fields of ClusterConfig as JSON, and `launchers` beside them.

    Raises ValueError.
    """
    written = json.loads(text)
    launchers = isinstance(written, dict) and written.pop("launchers", False) is True
    config: ClusterConfig = _CONFIG(written)
    return Confinement(config, launchers)


def refusal(message: Any, error: RequestError) -> List[Any]:
    """Return the actions by which koalad learns of a message that was not obeyed."""
    if isinstance(message, OpenStream):
        return [Send(StreamReset(message.tag, message.stream, error.code, error.message))]
    number = getattr(message, "id", None)
    return [] if number is None else [Send(Refused(number, failure(error.code, error.whose, error.message)))]


def _refuse_parts(parts: Mapping[str, Any], refused: Tuple[str, ...]) -> None:
    for each in refused:
        if parts.get(each):
            raise _refused("`%s` is none of the things" % each)


def _refused(what: str) -> RequestError:
    return RequestError("not_on_a_lease", "On a lease of another site %s that are taken." % what)


_CONFIG = reader(ClusterConfig)
