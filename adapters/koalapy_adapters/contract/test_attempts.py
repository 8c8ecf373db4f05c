"""An attempt on a batch system: the KCM on its head node, the wrapper and its agents on its nodes."""

import re

import pytest

from koalapy_adapters.contract.dialogue import program
from koalapy_adapters.contract.kcm import Kcm
from koalapy_adapters.contract.live import Live
from koalapy_adapters.contract.target import QUEUE, login
from koalapy_adapters.messages.kcm import BatchStatus, Refused, Report
from koalapy_adapters.messages.koalad import Cancel, Submit

_HOLDOUT = "trap '' TERM HUP INT; while :; do date +%s.%N >beat.new; mv beat.new beat; sleep 0.1; done"
# As a daemon does it: a session of its own, a parent that ends, standard streams that are elsewhere.
_DAEMON = f'(setsid sh -c "{_HOLDOUT}" </dev/null >/dev/null 2>&1 &)'


# ---- from submit to end ----------------------------------------------------------------------------------------------


def test_an_attempt_waits_at_its_barrier_runs_and_ends(live: Live) -> None:
    tag = live.attempt("echo out; echo err >&2")
    barrier = live.kcm.at_barrier(tag)
    assert live.kcm.measured(tag).ours >= 1
    assert (barrier.released_at, barrier.started_at) == (None, None)
    ended = live.kcm.played(tag)
    assert (ended.ending, ended.exit_status, ended.error) == ("exited", 0, None)
    assert (live.kcm.text(tag), live.kcm.text(tag, "errors")) == ("out\n", "err\n")


def test_the_batch_system_reports_that_it_runs(live: Live) -> None:
    tag = live.attempt("true")
    seen = live.kcm.first_message(BatchStatus, lambda message: (message.tag, message.state) == (tag, "running"))
    assert seen.batch_id == live.kcm.at_barrier(tag).batch_id


@pytest.mark.parametrize(
    ("script", "exit_status"),
    [("exit 7", 7), ("kill -KILL $$", 128 + 9), ("kill -SEGV $$", 128 + 11), ("no-such-command", 127)],
    ids=["exit", "kill", "segv", "not-found"],
)
def test_an_exit_status_arrives(live: Live, script: str, exit_status: int) -> None:
    tag = live.attempt(script)
    assert live.kcm.played(tag).exit_status == exit_status


def test_a_program_is_its_users_and_not_our_commands(live: Live) -> None:
    """The program has the node's login environment, and not the C locale in which the KCM runs commands."""
    tag = live.attempt('echo "LC_ALL=$LC_ALL."; umask; echo "$HOME"; pwd')
    assert live.kcm.played(tag).exit_status == 0
    locale, umask, home, where = live.kcm.text(tag).splitlines()
    assert locale != "LC_ALL=C."
    assert umask in ("0022", "0002", "0077", "0027", "0007")
    assert home.startswith("/")
    assert where.endswith(f"/{tag}/work")


# ---- several nodes ---------------------------------------------------------------------------------------------------


def test_processes_start_on_every_node_of_several(live: Live) -> None:
    """Each node starts as many processes as the job has processors there, and each process has its rank."""
    sizes = [free for free, nodes in live.batch.capacity().free_nodes for _ in range(nodes)]
    if len(sizes) < 2:
        pytest.skip("it has no two nodes free")
    processors = sum(sizes[:2])
    tag = live.attempt('echo "$KOALA_RANK $KOALA_LOCAL_RANK $KOALA_SIZE $(uname -n)"', processors)
    nodes = live.kcm.let_go(tag).nodes
    assert len(nodes) >= 2
    assert live.kcm.report(tag, "ended").exit_status == 0
    lines = sorted((line.split() for line in live.kcm.text(tag).splitlines()), key=lambda words: int(words[0]))
    assert [int(rank) for rank, *_ in lines] == list(range(processors))
    assert {size for _, _, size, _ in lines} == {str(processors)}
    places = [
        [int(local) for _, local, _, host in lines if host == name] for name in dict.fromkeys(s[3] for s in lines)
    ]
    assert places == [list(range(processes)) for _, _, processes in nodes]


def test_one_dead_process_ends_those_on_other_nodes(live: Live) -> None:
    sizes = [free for free, nodes in live.batch.capacity().free_nodes for _ in range(nodes)]
    if len(sizes) < 2:
        pytest.skip("it has no two nodes free")
    tag = live.attempt(f"[ $KOALA_RANK = 0 ] && exit 5; {_HOLDOUT}", sum(sizes[:2]))
    ended = live.kcm.played(tag)
    assert (ended.ending, ended.exit_status) == ("exited", 5)
    silent(live, tag)


# ---- nothing is left -------------------------------------------------------------------------------------------------


def test_what_the_program_forks_dies_with_it(live: Live) -> None:
    tag = live.attempt(f"{_DAEMON}; while [ ! -e beat ]; do sleep 0.05; done")
    assert live.kcm.played(tag).exit_status == 0
    silent(live, tag)


def test_a_cancel_ends_it_and_what_it_forked(live: Live) -> None:
    """The program ignores every signal that can be ignored."""
    tag = live.attempt(f"{_DAEMON}; {_HOLDOUT}")
    batch_id = live.kcm.let_go(tag).batch_id
    live.kcm.report(tag, "running")
    live.kcm.request(Cancel, tag)
    assert live.kcm.report(tag, "ended").ending == "cancelled"
    live.kcm.gone(tag)
    assert live.state(batch_id) in ("", "ended")
    silent(live, tag)


def test_the_batch_systems_own_cancel_ends_it_too(live: Live) -> None:
    """koalad gets an end that is killed, cancelled or lost, and no exit status 0."""
    tag = live.attempt(f"{_DAEMON}; exec sleep 600")
    batch_id = live.kcm.let_go(tag).batch_id
    live.kcm.report(tag, "running")
    live.batch.cancel(batch_id)
    end = live.kcm.first_message(object, lambda message: reports_end(message, tag))
    assert end.ending in ("killed", "cancelled", "lost")
    assert end.exit_status != 0
    silent(live, tag)


def test_one_that_waits_is_cancelled_and_never_runs(live: Live) -> None:
    with live.load():
        tag = live.attempt("true", live.batch.capacity().total)
        live.kcm.request(Cancel, tag)
        live.kcm.gone(tag)
        assert live.batch.look(tag).listed is None or live.batch.look(tag).listed.state == "ended"  # type: ignore[union-attr]
    assert not [message for message in live.kcm.log if isinstance(message, Report) and message.tag == tag]


# ---- never twice -----------------------------------------------------------------------------------------------------


def test_a_second_start_runs_nothing(live: Live) -> None:
    """The same batch script is submitted once more, as by a restart, or by a submit that took effect late."""
    tag = live.attempt("echo once >>count")
    assert live.kcm.played(tag).exit_status == 0
    again = live.job("")._replace(tag=tag)
    batch_id = live.batch.submit_script(again, live.script_of(tag))
    live.until_ended(batch_id)
    assert live.kcm.text(tag, "work", "count") == "once\n"


@pytest.mark.slow
def test_a_restart_by_the_batch_system_runs_nothing(live: Live) -> None:
    """koalad gets an end that is a completion failure, and the program has run only once."""
    if not live.target.restart:
        pytest.skip("the target does not state how the batch system restarts a job (--restart)")
    tag = live.attempt("echo once >>count; exec sleep 600")
    batch_id = live.kcm.let_go(tag).batch_id
    live.kcm.report(tag, "running")
    live.until(lambda: live.kcm.text(tag, "work", "count") == "once\n")
    live.operator.output("sh", "-c", live.target.restart.replace("{id}", batch_id))
    ended = live.kcm.first_message(object, lambda message: reports_end(message, tag))
    assert ended.ending in ("restarted", "killed", "cancelled", "lost")
    live.batch.cancel(batch_id)
    assert live.kcm.text(tag, "work", "count") == "once\n"


# ---- the KCM goes and comes ------------------------------------------------------------------------------------------


def test_the_next_kcm_finds_it_at_its_barrier(live: Live) -> None:
    tag = live.attempt("echo done")
    batch_id = live.kcm.at_barrier(tag).batch_id
    second = live.next_kcm([tag, batch_id])
    assert second.played(tag).exit_status == 0
    assert second.text(tag) == "done\n"


def test_one_that_the_batch_system_has_forgotten_is_missing_and_not_ended(live: Live) -> None:
    instance = live.strangers()
    tag, batch_id = live.tag(instance), re.sub(r"\d+", "4999999", live.submit(live.job("true")), count=1)
    kcm = Kcm(login(live.target), instance)
    try:
        kcm.hello(1, [[tag, batch_id]])
        seen = kcm.first_message(BatchStatus, lambda message: message.tag == tag)
        assert (seen.state, seen.ending, seen.exit_status) == ("missing", "", None)
    finally:
        kcm.close()


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_refusal_leaves_nothing_and_names_whose_move_it_is(live: Live) -> None:
    if QUEUE not in live.target.refuses:
        pytest.skip("it refuses no queue at once")
    batch = {"processors": 1, "walltime_s": 120, "queue": "no-such-queue"}
    tag = live.tag(live.instance)
    refused = live.kcm.answer(Submit, tag, batch, program("true"))
    assert isinstance(refused, Refused)
    assert refused.error["whose"] == "request"
    assert refused.error["message"], refused
    assert live.batch.look(tag).listed is None


# ---- below -----------------------------------------------------------------------------------------------------------


def silent(live: Live, tag: str) -> None:
    """Wait until the program's processes write no more beats. A beat may show late on a network file system."""
    path = live.script_of(tag).replace("/script", "/work/beat")
    beats = [""]

    def same() -> bool:
        beats.append(live.batch.output("sh", "-c", f"sleep 0.5; cat {path} 2>/dev/null; :"))
        return beats[-1] == beats[-2]

    live.until(same)


def reports_end(message: object, tag: str) -> bool:
    """Return whether the message reports the attempt's end, from the wrapper or from the batch system."""
    ended = isinstance(message, Report) and message.phase == "ended"
    seen = isinstance(message, BatchStatus) and message.state == "ended"
    return (ended or seen) and message.tag == tag  # type: ignore[attr-defined]
