"""The loads of a grid's sites and the run times within batches, against values by hand; and a real log."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app
from koalapy.experiments.workloads.grids import WITHIN, Log, batches, imbalance, read_log
from koalapy.model.errors import RequestError
from koalapy.model.units import SECOND, Duration

LCG = Path(__file__).parents[3] / "shared" / "workloads" / "LCG-2005-1.swf.xz"
HOUR_S, DAY_S = 3600, 86_400


def line(at: int, site: str = "1", user: str = "7", runtime: int = 10, processors: int = 1) -> str:
    return f"1 {at} -1 {runtime} {processors} -1 -1 {processors} -1 -1 1 {user} -1 -1 -1 {site} -1 -1\n"


def log(tmp_path: Path, *lines: str) -> Log:
    path = tmp_path / "log.swf"
    path.write_text("; Partition: 1 nikhef.nl\n; Partition: 2 rl.ac.uk\n" + "".join(lines))
    return read_log(path, lenient=False)


def test_the_imbalance_of_two_sites_is_computed_by_hour(tmp_path: Path) -> None:
    """Site 1 has four jobs on two processors, site 2 three on six. In the second hour they have three and one."""
    first = [line(0), *[line(HOUR_S + at) for at in (1, 2, 3)]]
    second = [line(HOUR_S + 9, "2"), line(2 * HOUR_S, "2"), line(DAY_S + 5, "2")]
    found = imbalance(log(tmp_path, *first, *second), {"nikhef.nl": 2, "rl.ac.uk": 6})
    assert [(each.site, each.jobs, each.load) for each in found.sites] == [("nikhef.nl", 4, 2), ("rl.ac.uk", 3, 0.5)]
    assert (found.overall, found.temporary, found.hour, found.others) == (4, 3, 1, 0)
    assert found.daily.tolist() == [[4, 0], [2, 1]]
    assert found.hourly[:, :3].tolist() == [[1, 3, 0], [0, 1, 1]]


def test_without_sizes_loads_are_jobs_and_with_some_only_those_sites_count(tmp_path: Path) -> None:
    read = log(tmp_path, line(0), line(1), line(2, "2"))
    assert [each.load for each in imbalance(read, {}).sites] == [2, 1]
    some = imbalance(read, {"nikhef.nl": 4})
    assert ([each.load for each in some.sites], some.others) == ([0.5], 1)
    with pytest.raises(RequestError, match="no jobs of site cern"):
        imbalance(read, {"cern": 4})


def test_hours_in_which_one_site_has_jobs_are_no_imbalance_of_two(tmp_path: Path) -> None:
    found = imbalance(log(tmp_path, line(0), line(1), line(HOUR_S, "2")), {})
    assert (found.temporary, found.hour) == (1, 0)


def test_a_batch_is_what_a_user_submits_within_two_minutes_of_its_first_job(tmp_path: Path) -> None:
    """The third job comes 120 s after the first; the fourth, 119 s after the third, begins anew."""
    mine = [line(0, runtime=1), line(60, runtime=10), line(120, runtime=1000), line(239, runtime=5)]
    others = [line(61, user="8", runtime=1000), line(62, user="8", runtime=0), line(63, user="8", runtime=-1)]
    found = batches(log(tmp_path, *mine, *others), WITHIN)
    pairs = found[0]
    assert [each.batches for each in found] == [2, 0, 0, 0, 0]
    assert (pairs.jobs, pairs.share_of_jobs) == (5, 5 / 6)
    assert pairs.share_of_work == pytest.approx(2011 / 2016)
    assert (pairs.spread_mean, pairs.spread_median) == (1000, 1000)
    assert pairs.orders_of_magnitude == pytest.approx(3)
    assert batches(log(tmp_path, *mine), Duration(59 * SECOND))[0].batches == 0


def test_batches_are_grouped_by_their_numbers_of_jobs(tmp_path: Path) -> None:
    jobs = [line(0, user=str(size)) for size in (9, 10, 49, 50, 500) for _ in range(size)]
    found = batches(log(tmp_path, *jobs), WITHIN)
    assert [(each.least, each.batches) for each in found] == [(2, 1), (10, 2), (50, 1), (100, 0), (500, 1)]


def test_a_log_without_users_has_no_batches(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="does not name the users"):
        batches(log(tmp_path, line(0, user="-1")), WITHIN)


@pytest.mark.parametrize(
    ("command", "schema", "options"),
    [("imbalance", "koala.imbalance/1", ["--size", "nikhef.nl=4"]), ("batches", "koala.batches/1", ["--within", "1h"])],
)
def test_a_command_writes_the_same_table_and_figure_each_time(
    tmp_path: Path, command: str, schema: str, options: list[str]
) -> None:
    log(tmp_path, line(0), line(30), line(60, "2"))
    written: list[dict[str, bytes]] = []
    for out in ("one", "other"):
        arguments = ["sim", command, str(tmp_path / "log.swf"), "--out", str(tmp_path / out), "--json", *options]
        said = CliRunner().invoke(app, arguments)
        assert said.exit_code == 0, said.output
        document = json.loads(said.stdout)
        assert document["schema"] == schema
        written.append({Path(file).name: Path(file).read_bytes() for file in document["files"]})
    assert written[0] == written[1]
    assert sorted(written[0]) == [f"log-{command}{suffix}" for suffix in (".csv", ".png", ".svg")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["imbalance", "--size", "x"], "--size x is not NAME=VALUE."),
        (["imbalance", "--size", "cern=8"], "The log has no jobs of site cern."),
        (["batches", "--within", "soon"], "Write --within 2m."),
    ],
)
def test_an_error_is_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    log(tmp_path, line(0))
    command, *options = arguments
    said = CliRunner().invoke(
        app, ["sim", command, str(tmp_path / "log.swf"), "--out", str(tmp_path / "out"), *options]
    )
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.split())
    assert not (tmp_path / "out").exists()


def test_a_real_grid_has_batches_whose_run_times_differ_by_orders_of_magnitude() -> None:
    if not LCG.exists():
        pytest.skip(f"the log {LCG.name} is not here")
    read = read_log(LCG, lenient=False)
    assert len(read.jobs) == 188_041
    found = batches(read, WITHIN)
    assert 0.9 < sum(each.share_of_jobs for each in found) < 1
    assert all(each.spread_mean > 100 for each in found if each.batches)
    assert imbalance(read, {}).temporary > 100
