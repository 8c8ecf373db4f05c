"""Two koalads of two people: a job that is too large for the one runs on processors that the other lends."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import live
import pytest
from scrapes import metrics_of, value
from site_koalas import leases
from site_pair import SLOTS, Pair


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as place:
        made = Pair(Path(place), isolation="none")
        try:
            made.link()
            yield made
        finally:
            made.stop()


def test_a_job_too_large_for_one_site_runs_on_a_lease_of_the_other(pair: Pair) -> None:
    delft, lyon = pair.both
    gate, home = delft.work / "gate", delft.work / "home"
    job = delft.submit(live.sh(f'echo "$HOME" >{home}; while [ ! -e {gate} ]; do sleep 0.1; done', 4, walltime="2m"))
    delft.until(lambda: delft.job(job)["state"] == "running")
    (borrowed,), (lent,) = leases(delft), leases(lyon)
    lease = borrowed["name"]
    assert lease.startswith("lyon~")
    assert (borrowed["direction"], borrowed["job"], borrowed["jobs"]) == ("borrowed", job, [job])
    assert (lent["direction"], lent["neighbour"], lent["on"]) == ("lent", "delft", "lyon-nodes")
    for each in (borrowed, lent):
        assert (each["state"], each["processors"], each["reachable"]) == ("bound", 4, True)
    assert delft.job(job)["components"][0]["cluster"] == lease
    assert lease in delft("leases").out
    assert lent["name"] in lyon("leases").out
    for koala, neighbour, direction in ((delft, "lyon", "borrowed"), (lyon, "delft", "lent")):
        text = metrics_of(koala)
        assert value(text, "koala_neighbour_connected", neighbour=neighbour) == 1
        assert value(text, "koala_leased_processors", neighbour=neighbour, direction=direction) == 4
    assert lyon("pilots", "--json").document["pilots"] == []
    delft("leases", "end", lease).refused(2, f"because of job {job} there", "--force")
    gate.touch()
    assert delft.end(job)["state"] == "done"
    directory = Path(home.read_text().strip())
    assert directory.name == "lease"
    assert lyon.root in directory.parents
    pair.idle()
    usage = [koala("leases", "--json").document["usage"][0] for koala in pair.both]
    assert usage[0]["borrowed_s"] == usage[1]["lent_s"] > 0
    of_delft, of_lyon = metrics_of(delft), metrics_of(lyon)
    seconds, messages = "koala_leased_processor_seconds_total", "koala_neighbour_messages_total"
    charge = value(of_delft, seconds, neighbour="lyon", direction="borrowed")
    assert charge == value(of_lyon, seconds, neighbour="delft", direction="lent") == usage[0]["borrowed_s"]
    for one, other, at_one, at_other in ((of_delft, of_lyon, "lyon", "delft"), (of_lyon, of_delft, "delft", "lyon")):
        sent = value(one, messages, neighbour=at_one, direction="sent")
        assert sent >= value(other, messages, neighbour=at_other, direction="received") > 1
    audits = [koala("leases", "--all", "--json").document["ended"] for koala in pair.both]
    for each in (ended := [audit[0] for audit in audits]):
        user, number, name = each["user"], each["request"], each["job_name"]
        assert (user, number, name) == (delft.job(job)["owner"], job, delft.job(job)["name"])
        assert (each["processors"], each["code"], each["charged_s"]) == (4, "lease_returned", usage[0]["borrowed_s"])
    assert [(each["site"], each["on"]) for each in ended] == [(None, lease), ("delft", "lyon-nodes")]
    assert f"at delft  {job}" in lyon("leases", "--all").out
    assert lyon("leases", "--since", "2099-01-01", "--json").document["ended"] == []
    lines = [json.loads(line) for line in next(lyon.root.glob("state/koala/*/koalad.log")).read_text().splitlines()]
    audit = [line for line in lines if line["event"] in ("lease_began", "lease_ended")]
    assert [(line["event"], line["job"], line["site"]) for line in audit] == [
        ("lease_began", job, "delft"), ("lease_ended", job, "delft")
    ]  # fmt: skip
    assert audit[1]["charged_s"] == usage[0]["borrowed_s"]
    counts = [koala("sites", "--json").document["neighbours"][0] for koala in pair.both]
    assert (counts[0]["ours"], counts[0]["borrowed"]) == (counts[1]["theirs"], 0)
    assert counts[0]["ours"]["granted"] == 1
    assert "1 granted" in lyon("sites").out
    of_sites = [koala("usage", "--by", "site", "--json").document for koala in pair.both]
    rows = [{each["site"]: each for each in document["rows"]} for document in of_sites]
    assert rows[0]["lyon"]["leased"]["borrowed"] == rows[1]["delft"]["leased"]["lent"] == usage[0]["borrowed_s"]
    assert of_sites[0]["total"] == delft("usage", "--json").document["total"]
    assert 0 <= rows[0]["lyon"]["run"] < usage[0]["borrowed_s"]  # by the clock of a node, which is estimated
    assert abs(rows[0]["lyon"]["leased"]["difference"]) < 4 * 5
    shown = [line.split() for line in lyon("usage", "--by", "site").out.splitlines()]
    assert ["delft", "1"] in [[line[0], line[6]] for line in shown if len(line) > 6]
    gate.unlink()


@pytest.mark.slow  # a sibling of the chain's
def test_what_runs_on_a_lease_survives_killed_koalads_of_both_sides(pair: Pair) -> None:
    job, gate, lines = pair.running("killed")
    for koala in pair.both:
        koala.kill()
        assert koala("up").status == 0
    assert len(leases(pair.delft)) == len(leases(pair.lyon)) == 1
    gate.touch()
    ended = pair.delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    assert lines.read_text() == "begun\nended\n"
    pair.idle()


def test_a_lender_takes_a_lease_back_and_the_job_runs_again(pair: Pair) -> None:
    job, gate, lines = pair.running("taken")
    (lent,), (borrowed,) = leases(pair.lyon), leases(pair.delft)
    assert pair.lyon("leases", "end", lent["name"]).status == 0
    pair.delft.until(lambda: lines.read_text() == "begun\nbegun\n")
    gate.touch()
    ended = pair.delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    out = pair.delft("show", job).out
    assert f"The lease {borrowed['name']} has ended: Its lender has taken it back." in out
    assert f"The site lyon takes {borrowed['name']} back" in out
    pair.idle()


def test_a_job_communicates_between_components_on_own_and_on_leased_processors(pair: Pair) -> None:
    delft = pair.delft
    got = delft.work / "got"
    job = delft.submit(
        live.sh(f"$KOALA_RENDEZVOUS get word >{got}", 2, walltime="2m", launch="once"),
        live.sh('$KOALA_RENDEZVOUS put word "$KOALA_RANK of $KOALA_SIZE"', 4, walltime="2m", launch="once"),
    )
    ended = delft.end(job)
    assert ended["state"] == "done"
    own, lent = [each["cluster"] for each in ended["components"]]
    assert (own, str(lent).partition("~")[0]) == ("delft-nodes", "lyon")
    assert got.read_text().strip() == "1 of 2"
    asked = "The site lyon is asked for 4 processors of 6, for component 1: the others fit on delft-nodes."
    assert asked in delft("show", job).out
    pair.idle()


def test_a_sweep_without_idle_nodes_runs_on_a_lease(pair: Pair) -> None:
    delft = pair.delft
    count, ran, gate = SLOTS["delft"] + 3, delft.work / "ran", delft.work / "sweep.gate"
    script = f"echo $0 >>{ran}; while [ ! -e {gate} ]; do sleep 0.1; done"
    begun = delft("sweep", "--json", "-p", f"x=1:{count}", "--", "sh", "-c", script, "{x}")
    sweep = int(begun.document["id"])
    delft.until(lambda: ran.exists() and len(ran.read_text().splitlines()) == count)
    borrowed = leases(delft)
    assert sum(each["processors"] for each in borrowed) == sum(each["processors"] for each in leases(pair.lyon)) == 3
    assert {each["job"] for each in borrowed} == {sweep}
    assert f", as {borrowed[0]['name']}." in delft("explain", sweep).out
    gate.touch()
    assert delft("wait", sweep).status == 0
    found = delft("results", sweep, "--json").document["results"]
    assert sorted(each["parameter"] for each in found) == list(range(1, count + 1))
    assert {each["cluster"] for each in found} == {"delft-nodes", *(each["name"] for each in borrowed)}
    pair.idle()


@pytest.mark.slow  # a sibling of the row in which a person takes it back
def test_parameters_on_a_lease_that_is_taken_back_run_again(pair: Pair) -> None:
    delft = pair.delft
    count, ran, gate = SLOTS["delft"] + 3, delft.work / "again", delft.work / "again.gate"
    script = f"echo $0 >>{ran}; while [ ! -e {gate} ]; do sleep 0.1; done"
    sweep = int(delft("sweep", "--json", "-p", f"x=1:{count}", "--", "sh", "-c", script, "{x}").document["id"])
    delft.until(lambda: ran.exists() and len(ran.read_text().splitlines()) == count)
    for lent in leases(pair.lyon):
        assert pair.lyon("leases", "end", lent["name"]).status == 0
    delft.until(lambda: len(ran.read_text().splitlines()) == count + 3)
    gate.touch()
    assert delft("wait", sweep).status == 0
    assert sorted(each["parameter"] for each in delft("results", sweep, "--json").document["results"]) == list(
        range(1, count + 1)
    )
    pair.idle()


def test_why_nothing_is_borrowed_is_explained(pair: Pair) -> None:
    delft, lyon = pair.both
    job = delft.submit(live.sh("exit 0", 6, walltime="2m"))
    assert delft.job(job)["state"] == "waiting"
    delft.until(
        lambda: "from the site lyon: It could lend 5 processors by its last report" in delft("explain", job).out
    )
    delft("cancel", job)
    lyon("leases", "end", "pilot~99").refused(2, "There is no lease pilot~99", "`koala leases`")


@pytest.mark.slow  # a sibling of the row in which a person takes it back
def test_a_lender_takes_a_lease_back_for_its_own_job_and_the_borrowers_job_runs_again_uncounted(pair: Pair) -> None:
    delft, lyon = pair.both
    job, gate, lines = pair.running("revoked")
    (lent,) = leases(lyon)
    open_own = lyon.work / "own.gate"
    own = lyon.submit(live.sh(f"while [ ! -e {open_own} ]; do sleep 0.1; done", SLOTS["lyon"], walltime="1m"))
    lyon.until(lambda: lyon.job(own)["state"] == "running")
    assert leases(lyon) == []
    waiting = delft.job(job)
    assert (waiting["state"], waiting["completion_failures"]) == ("waiting", 0)
    assert "The site lyon needs its processors." in delft("show", job).out
    assert f"It is taken back for job {own}." in lyon("show", lent["job"]).out
    assert "is taken back for it" in lyon("show", own).out
    open_own.touch()
    delft.until(lambda: lines.read_text() == "begun\nbegun\n")
    gate.touch()
    ended = delft.end(job)
    assert (ended["state"], ended["completion_failures"], ended["submission_failures"]) == ("done", 0, 0)
    for koala in pair.both:
        koala.until(lambda: not leases(koala))  # noqa: B023
