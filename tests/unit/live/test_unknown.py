"""Tags that a store does not know, over a real koalad: another store's live job is listed, and goes only by command."""

import os
import pty
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest
import yaml

Document = dict[str, Any]


@pytest.fixture
def two(fresh: Any, place: Path) -> Iterator[tuple[Any, Any]]:
    """Two grids of one person on the same clusters, each with a koalad and a store of its own."""
    other = type(fresh)(place / "o")
    clusters = {name: {**each, "shared": str(fresh.root / name)} for name, each in clusters_of(fresh).items()}
    other.write_grid({"grid": "other", "clusters": clusters})
    yield fresh, other
    other.stop()


def clusters_of(koala: Any) -> Document:
    return dict(yaml.safe_load(koala.grid_file.read_text())["clusters"])


def unknown(koala: Any) -> Document:
    return dict(koala("status", "--unknown", "--json").document)


def running(koala: Any, shell: Callable[..., Document]) -> int:
    job = int(koala.submit(shell("sleep 1000", cluster="delft")))
    koala.until(lambda: koala.job(job)["state"] == "running")
    return job


def test_a_grid_of_its_own_has_no_unknown_tags(fresh: Any, shell: Callable[..., Document]) -> None:
    fresh("up")
    job = fresh.submit(shell("true", cluster="delft"))
    fresh.end(job)
    document = unknown(fresh)
    assert (document["schema"], document["tags"]) == ("koala.unknown/1", [])
    assert [each["cluster"] for each in document["clusters"]] == ["amsterdam", "delft", "leiden"]
    assert fresh("status", "--unknown").out == "There are no unknown tags on the clusters that could be asked.\n"
    tag = next(path.name for path in (fresh.root / "delft").glob("*/k*"))
    fresh("clean", tag, "--yes").refused(1, f"{tag} is attempt {job}.0.1 of job {job}, which this store knows.")
    fresh("clean", "nonsense", "--yes").refused(2, "'nonsense' is not a tag.")
    fresh("clean", "kzzzzz000000001", "--yes").refused(1, "No cluster that could be asked has an unknown tag")
    assert fresh("logs", job).status == 0


def test_another_stores_live_job_is_reported_and_goes_by_command_only(
    two: tuple[Any, Any], shell: Callable[..., Document]
) -> None:
    mine, other = two
    other("up")
    job = running(other, shell)
    done = other.submit(shell("true", cluster="leiden"))
    other.end(done)
    mine("up")
    mine.until(lambda: mine("status", "--json").document["unknown_tags"]["count"] == 2)
    store = mine("status", "--json").document["unknown_tags"]["stores"][0]
    assert (store["own"], store["tags"], store["may_run"], store["clusters"]) == (False, 2, 1, ["delft", "leiden"])
    shown = mine("status").out
    assert f"unknown: 2 tags of store {store['store']} on delft, leiden, 1 of them may run" in shown
    refused = mine("clean", "--store", store["store"], "--ended", "--yes")
    refused.refused(2, f"The store {store['store']} may be in use: 1 tag of it may run")
    assert other.job(job)["state"] == "running"
    tags = {each["cluster"]: each for each in unknown(mine)["tags"]}
    live, over = tags["delft"], tags["leiden"]
    assert (live["own"], live["attempt"], live["batch_state"]) == (False, f"{job}.0.1", "running")
    assert (live["wrapper"], live["directory"]) == ("alive", True)
    assert live["age_s"] < 3600
    assert (over["wrapper"], over["batch_id"]) == ("ended", None)
    assert live["tag"] in mine("status", "--unknown").out
    answer = mine("clean", live["tag"])  # nobody is there to be asked
    assert (answer.status, answer.out) == (2, "")
    assert "may be a live job of yours" in answer.err
    assert "These have a living wrapper" in answer.err
    assert "koala: Removing these needs confirmation on a terminal." in answer.err
    assert other.job(job)["state"] == "running"
    cleaned = mine("clean", live["tag"], over["tag"], "--yes", "--json").document
    assert cleaned["schema"] == "koala.cleaned/1"
    assert {(each["cluster"], each["tag"], each["state"]) for each in cleaned["cleaned"]} == {
        ("delft", live["tag"], "cleaned"),
        ("leiden", over["tag"], "cleaned"),
    }
    left = [each["tag"] for each in unknown(mine)["tags"]]
    assert not {live["tag"], over["tag"]} & set(left)  # but its owner tries the job again, as one that was killed
    other.until(lambda: other.job(job)["components"][0]["attempt"] == 2)
    assert not list((mine.root / "delft").glob(f"*/{live['tag']}"))
    assert not list((mine.root / "leiden").glob(f"*/{over['tag']}"))


def test_a_whole_store_in_which_nothing_runs_goes_at_once(two: tuple[Any, Any], shell: Callable[..., Document]) -> None:
    mine, other = two
    other("up")
    for cluster in ("leiden", "leiden", "delft"):
        other.end(other.submit(shell("true", cluster=cluster)))
    mine("up")
    mine.known()
    document = unknown(mine)
    (store,) = document["stores"]
    assert (store["tags"], store["may_run"], store["clusters"]) == (3, 0, ["delft", "leiden"])
    name = store["store"]
    listed = mine("status", "--unknown").out.splitlines()
    assert listed[1].split() == [name, "under", "1d", "3", "0", "delft,", "leiden"]
    assert f"`koala clean --store {name} --ended` removes them" in mine("status").out
    answer = mine("clean", "--store", name, "--ended")  # nobody is there to be asked
    assert (answer.status, answer.out) == (2, "")
    assert f"3 tags of store {name} on delft, leiden, none may run" in answer.err
    assert mine("clean", "--store", name, "--ended", "-c", "delft", "--yes").out == "1 tag is cleaned up\n"
    cleaned = mine("clean", "--store", name, "--ended", "--yes", "--json").document
    assert [each["cluster"] for each in cleaned["cleaned"]] == ["leiden", "leiden"]
    assert unknown(mine)["tags"] == []
    mine("clean", "--store", name, "--ended", "--yes").refused(2, "No cluster that could be asked has")


def test_a_person_at_a_terminal_is_asked(two: tuple[Any, Any], shell: Callable[..., Document]) -> None:
    mine, other = two
    other("up")
    done = other.submit(shell("true", cluster="leiden"))
    other.end(done)
    mine("up")
    mine.known()
    (found,) = unknown(mine)["tags"]
    for answer, left in (("n\n", 1), ("y\n", 0)):
        main, terminal = pty.openpty()
        os.write(main, answer.encode())
        process = mine.start("clean", found["tag"], stdin=terminal)
        process.communicate(timeout=live.CALL_S)
        os.close(main)
        os.close(terminal)
        assert process.returncode == left
        assert len(unknown(mine)["tags"]) == left


def test_what_came_after_a_restored_backup_is_reported_as_our_own(fresh: Any, shell: Callable[..., Document]) -> None:
    fresh("up")
    first = fresh.submit(shell("true", cluster="delft"))
    fresh.end(first)
    fresh("down")
    state = fresh.root / "state" / "koala" / "live"
    shutil.copytree(state, fresh.root / "backup")
    fresh("up")
    late = running(fresh, shell)
    os.kill(fresh("status", "--json").document["pid"], signal.SIGKILL)
    fresh.until(lambda: fresh("status").status == 3)
    shutil.rmtree(state)
    shutil.copytree(fresh.root / "backup", state)
    fresh("up")
    fresh.until(lambda: fresh("status", "--json").document["unknown_tags"]["count"])
    (found,) = unknown(fresh)["tags"]
    assert (found["own"], found["attempt"], found["wrapper"]) == (True, f"{late}.0.1", "alive")
    assert "of this store" in fresh("status").out
    assert fresh("clean", found["tag"], "--yes").out == f"{found['tag']} on delft is cleaned up\n"
    assert unknown(fresh)["tags"] == []
