"""The command that compares statistics with what is known of public data, on invented files of the same shape."""

import lzma
from pathlib import Path

import pytest

from tests.bench import public_data

SUMMARY = """SN,years,batch,cage,out,dbe,otb
a,2.0,old,0,TRUE,1,0
b,3.0,old,0,FALSE,0,2
c,1.0,old,1,TRUE,0,1
d,4.0,new,2,FALSE,0,0
"""
FULL = """SN,insert,remove,event
a,2015-01-01 00:00:00,2015-12-31 12:00:00,DBE
b,2015-01-01 00:00:00,2015-12-31 12:00:00,OTB
b,,2015-12-31 12:00:30,OTB
c,2015-01-01 00:00:00,2016-01-31 00:00:00,OTB
d,2015-01-01 00:00:00,2016-02-09 00:00:00,
"""
RECORDS = "System,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,Human Error,Network,Undetermined,Software\n" + (
    "20,6/21/2005 10:00,6/21/2005 10:06,6,,Disk,,,,\n"
    "20,6/21/2005 10:00,6/21/2005 11:00,60,,,,,,OS\n"
    "20,6/21/2005 11:00,6/21/2005 11:10,10,,,,,,\n"
    "20,6/21/2005 15:00,6/21/2005 15:10,9,,CPU,,,,\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    for name, text in zip(public_data.KNOWN["titan"]["files"], (SUMMARY, FULL), strict=True):
        (tmp_path / "deep" / name).write_text(text, encoding="utf-8")
    (packed,) = public_data.KNOWN["lanl"]["files"]
    with lzma.open(tmp_path / packed, "wt", encoding="utf-8") as out:
        out.write(RECORDS)
    return tmp_path


def test_cards_are_counted_by_cohort_and_die_when_removed_after_an_error(folder: Path) -> None:
    found = dict(public_data.titan(folder))
    assert {name: found[f"dead, {name}"] for name in ("all", "old batch", "new batch", "old, cage 1")} == {
        "all": 2, "old batch": 2, "new batch": 0, "old, cage 1": 1,
    }  # fmt: skip
    assert (found["GPU-years, all"], found["years a failure, old batch"]) == (10.0, 3.0)
    assert "years a failure, new batch" not in found
    assert found["survive 1 year, old"] == pytest.approx(2 / 3)
    assert found["share of the top 1 cards, percent"] == 50


def test_errors_close_in_time_are_one_episode_and_quarters_end_with_the_data(folder: Path) -> None:
    found = dict(public_data.titan(folder))
    assert [found[f"episodes, {name}"] for name in ("raw", "gap 5 s", "gap 60 s", "first of card")] == [4, 4, 3, 3]
    assert (found["events, 2015Q4"], found["events, 2016Q1"]) == (3, 1)
    assert found["hours an event, 2015Q4"] == pytest.approx(92 * 24 / 3)
    assert found["hours an event, 2016Q1"] == 39 * 24


def test_records_are_counted_by_cause_with_mean_and_median(folder: Path) -> None:
    found = dict(public_data.lanl(folder))
    assert (found["records"], found["records, Hardware"], found["records, no cause"]) == (4, 2, 1)
    assert (found["down time mean, min"], found["down time median, min"]) == (21.25, 9.5)
    assert found["repairs whose down time is not fixed - started"] == 1
    assert found["gaps of 0, system 20, percent"] == pytest.approx(100 / 3)
    assert found["mean gap, system 20, min"] == 100


def test_a_figure_is_equal_if_it_rounds_to_what_is_known_and_one_that_is_missing_is_not() -> None:
    found = public_data.compare([("a", 1234.56), ("b", 2.0), ("c", 3.0)], {"a": "1,234.6", "b": "2.1", "d": "4"})
    assert [(line.name, line.ours, line.equal) for line in found] == [
        ("a", "1,234.6", True),
        ("b", "2.0", False),
        ("c", "3", None),
        ("d", "-", False),
    ]


def test_a_table_says_what_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert public_data.main([str(folder)]) == 1
    told = capsys.readouterr().out
    assert "| cards, all | 4 | 30,207 | NO |" in told
    assert "| Weibull scale, new |" not in told


def test_a_missing_file_is_named_with_its_source_and_citation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert public_data.main([str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "gc_summary_loc.csv is not below" in told
    assert "olcf/TitanGPULife" in told
    assert "10.13139/ORNLNCCS/1657202" in told


def test_without_a_folder_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert public_data.main([]) == 2
    assert "make public-data DATA=DIR" in capsys.readouterr().err
