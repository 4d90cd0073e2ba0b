"""Following a folder: every file counts once, and a window is taken in when it is over."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_folders import be_quick, die_at, in_process, quick
from weekly import copy, day, fitted, read_log, state, take_in, updates, week, weeks, write_log

import dysat
from dysat.errors import ModelError
from dysat.runs.feed import EventFile, Feed, merge_events
from dysat.runs.run import Run
from dysat.runs.stream import Stream
from dysat.runs.update import Update, updating

__all__ = ["quick"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("base"), weeks(0, 3)).folder


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Path:
    return copy(base, tmp_path / "run")


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


class Watcher:
    """A feed of a run, with the messages it has sent."""

    def __init__(self, run: Path, inbox: Path) -> None:
        self.messages: list[str] = []
        self.feed = Feed(inbox, read_log, tell=self.messages.append)
        self.opened = updating(Run.open(run), device="cpu")
        self.updater = self.opened.__enter__()

    def scan(self) -> list[int]:
        """Scan once; return the steps taken in."""
        return [update.step for update in self.feed.scan(self.updater)]

    def scan_twice(self) -> list[int]:
        """Scan until new files count as complete."""
        return [*self.scan(), *self.scan()]

    def close(self) -> None:
        self.opened.__exit__(None, None, None)


@pytest.fixture
def watcher(run: Path, inbox: Path) -> Any:
    watcher = Watcher(run, inbox)
    yield watcher
    watcher.close()


def expected(base: Path, folder: Path, *rows: Any) -> tuple[Any, ...]:
    """The state of a run that has taken in these rows as one file."""
    copy(base, folder / "expected")
    take_in(folder / "expected", write_log(folder / "rows.csv", rows))
    return state(folder / "expected")[:4]


def once(run: Path, inbox: Path, tell: Callable[[str], None] = lambda text: None) -> list[Update]:
    """Follow the folder once, as `--follow --once` does."""
    with updating(Run.open(run), device="cpu") as updater:
        feed = Feed(inbox, read_log, tell=tell)
        return list(feed.follow(updater, stop=lambda: False, once=True))


# Windows


def test_a_window_is_taken_in_when_it_is_over(watcher: Watcher, inbox: Path, tmp_path: Path) -> None:
    write_log(inbox / "3.csv", week(3))
    assert watcher.scan_twice() == []  # more of this week may come
    write_log(inbox / "more.csv", [("p1", "late riser", day(3, 6))])
    assert watcher.scan_twice() == []
    write_log(inbox / "4.csv", week(4)[:1])  # the first event of the next week
    assert watcher.scan_twice() == [3]
    write_log(inbox / "5.csv", [*week(4)[1:], *week(6)])
    assert watcher.scan_twice() == [4, 5]
    rows = [*weeks(0, 4), ("p1", "late riser", day(3, 6)), *week(4), *week(6)]
    whole = dysat.build_snapshots(read_log(write_log(tmp_path / "all.csv", rows)), every="1w")
    assert watcher.updater.graph.equals(whole[:6]) and whole[5].num_links == 0
    assert [facts["step"] for facts in updates(watcher.updater.run.folder)] == [3, 4, 5]


def test_three_files_equal_one_file(run: Path, inbox: Path, base: Path, tmp_path: Path) -> None:
    for number in (3, 4, 5):
        write_log(inbox / f"{number}.csv", week(number))
    assert [update.step for update in once(run, inbox)] == [3, 4]
    assert state(run)[:4] == expected(base, tmp_path, *weeks(3, 5))
    assert [(file["name"], file["late"]) for file in Stream.open(run).files] == [
        ("3.csv", 0),
        ("4.csv", 0),
        ("5.csv", 0),
    ]


def test_files_in_any_order_and_with_weights(run: Path, inbox: Path, base: Path, tmp_path: Path) -> None:
    rows = weeks(3, 5)
    write_log(inbox / "b.csv", rows[::2])
    lines = "".join(f"{u},{v},{when},1\n" for u, v, when in rows[1::2])
    (inbox / "a.csv").write_text("src,dst,time,weight\n" + lines)
    write_log(inbox / "c.csv", week(5)[:1])
    assert len(once(run, inbox)) == 2
    graph = Run.open(run).model("cpu").graph_
    whole = dysat.build_snapshots(read_log(write_log(tmp_path / "all.csv", weeks(0, 5))), every="1w")
    assert graph.equals(whole)


def test_nothing_new_changes_nothing(watcher: Watcher, inbox: Path, run: Path) -> None:
    assert watcher.scan_twice() == [] and watcher.messages == []
    write_log(inbox / "3.csv", week(3))
    watcher.scan_twice()
    before = len(watcher.messages)
    assert [watcher.scan() for _ in range(5)] == [[]] * 5 and len(watcher.messages) == before and updates(run) == []


def test_follow_until_stopped(run: Path, inbox: Path) -> None:
    """Files arrive while it waits."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            write_log(inbox / "3.csv", week(3))
        if asked == 9:
            write_log(inbox / "4.csv", week(4))
        return len(updates(run)) > 0 or asked > 1000

    found: list[Update] = []
    with updating(Run.open(run), device="cpu") as updater:
        found.extend(Feed(inbox, read_log).follow(updater, stop=stop, poll=0.001))
    assert [update.step for update in found] == [3] and 9 < asked < 1000


# Files


def test_a_file_is_read_once_it_stops_changing(
    watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path
) -> None:
    rows = [*week(3), *week(4)[:1]]
    write_log(inbox / "log.csv", rows[:5])
    assert watcher.scan() == []
    write_log(inbox / "log.csv", rows[:9])
    assert watcher.scan() == [] and watcher.messages == []  # it has changed
    write_log(inbox / "log.csv", rows)
    assert watcher.scan() == [] and watcher.scan() == [3]
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


def test_unfinished_files_are_ignored(watcher: Watcher, inbox: Path) -> None:
    for name in (".log.csv", "~log.csv", "log.csv.tmp", "log.csv.part", "log.crdownload"):
        write_log(inbox / name, weeks(3, 5))
    (inbox / "folder").mkdir()
    (inbox / "empty.csv").touch()
    assert watcher.scan_twice() == [] and watcher.messages == []
    (inbox / name).rename(inbox / "log.csv")
    assert watcher.scan_twice() == [3]


def test_a_bad_file_is_reported_once_and_read_again_when_changed(
    watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path
) -> None:
    bad, rows = inbox / "bad.csv", week(3)
    bad.write_text("src,dst,time\np1,p2,soon\n")
    write_log(inbox / "good.csv", [*rows[5:], *week(4)[:1]])
    (inbox / "good.csv").rename(tmp_path / "good.csv")
    assert watcher.scan_twice() == [] and watcher.scan_twice() == []
    (message,) = watcher.messages
    assert message.startswith(f"{bad}") and "'soon'" in message and "\n" not in message
    write_log(bad, rows[:5])
    watcher.scan_twice()
    (tmp_path / "good.csv").rename(inbox / "good.csv")
    assert watcher.scan_twice() == [3]
    assert state(run)[:4] == expected(base, tmp_path, *rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("p1", "p2", "2299-01-01")], "the event of 2299-01-01 would make 14,3"),
        ([("p1", "p2", day(2))], "all 1 events lie before 2024-01-22, where the last window of"),
    ],
    ids=["far in the future", "late"],
)
def test_an_unusable_file_does_not_stop_the_others(
    watcher: Watcher, inbox: Path, rows: list[Any], message: str
) -> None:
    write_log(inbox / "a.csv", rows)
    write_log(inbox / "b.csv", [*week(3), *week(4)[:1]])
    assert watcher.scan_twice() == [3]
    assert watcher.messages[0].startswith(f"{inbox / 'a.csv'}: ") and message in watcher.messages[0]


def test_unusable_labels_do_not_stop_the_others(tmp_path: Path, inbox: Path) -> None:
    rows = [(100 - i, 90 - (i * 3 + n) % 8, day(n, i % 7)) for n in range(4) for i in range(8)]
    run = fitted(tmp_path, [row for row in rows if row[2] < day(3)]).folder
    watcher = Watcher(run, inbox)
    write_log(inbox / "a.csv", [("ann", "bob", day(3))])
    write_log(inbox / "b.csv", [*(row for row in rows if row[2] >= day(3)), (99, 98, day(4))])
    assert (
        watcher.scan_twice() == [3]
        and watcher.messages[0].startswith(f"{inbox / 'a.csv'}: ")
        and "ann" in watcher.messages[0]
    )
    assert watcher.updater.graph.nodes.dtype == np.int64
    watcher.close()


def test_a_copy_is_not_counted(watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path) -> None:
    write_log(inbox / "a.csv", week(3))
    watcher.scan_twice()
    shutil.copy(inbox / "a.csv", inbox / "b.csv")  # while it waits
    write_log(inbox / "z.csv", week(4)[:1])
    assert watcher.scan_twice() == [3]
    assert f"{inbox / 'b.csv'}: the same content as a.csv, so it is not counted again" in watcher.messages
    shutil.copy(inbox / "a.csv", inbox / "c.csv")  # when it is taken in
    assert watcher.scan_twice() == []
    assert watcher.messages[-1] == f"{inbox / 'c.csv'}: its events were already taken in (as a.csv), up to {day(4)}"
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_copy_counts_when_the_original_is_gone(
    watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path, later: bool
) -> None:
    write_log(inbox / "b.csv", week(3))
    watcher.scan_twice()
    shutil.copy(inbox / "b.csv", inbox / "a.csv")
    watcher.scan()
    if later:
        watcher.scan()
    (inbox / "b.csv").unlink()
    watcher.scan_twice()
    assert "b.csv: removed before its last window closed; its events for that window are ignored" in watcher.messages
    write_log(inbox / "z.csv", week(4)[:1])
    assert watcher.scan_twice() == [3] and watcher.scan_twice() == []
    assert state(run)[:4] == expected(base, tmp_path, *week(3))
    assert len(watcher.messages) == 4 + later


def test_a_removed_file_is_ignored(watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path) -> None:
    write_log(inbox / "wrong.csv", [("p1", "wrong", day(3))])
    watcher.scan_twice()
    (inbox / "wrong.csv").unlink()
    write_log(inbox / "right.csv", [*week(3), *week(4)[:1]])
    assert watcher.scan_twice() == [3]
    assert (
        "wrong.csv: removed before its last window closed; its events for that window are ignored" in watcher.messages
    )
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


def test_a_growing_file(watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path) -> None:
    log = inbox / "log.csv"
    write_log(log, [*week(3), *week(4)[:3]])
    assert watcher.scan_twice() == [3]
    write_log(log, [*week(3), *week(4), *week(5)[:1]])
    assert watcher.scan_twice() == [4]
    message = f"log.csv: changed since it was taken in; its 16 events before {day(4)} are ignored"
    assert message in watcher.messages
    assert state(run)[:4] == expected(base, tmp_path, *weeks(3, 5))
    assert [file["late"] for file in Stream.open(run).files] == [0, 0]


def test_late_events_of_a_growing_file_are_counted(watcher: Watcher, inbox: Path, run: Path) -> None:
    write_log(inbox / "log.csv", week(3))
    write_log(inbox / "other.csv", week(4)[:1])
    assert watcher.scan_twice() == [3]
    write_log(inbox / "log.csv", [*week(3), *week(3)[:5], *week(4)])  # five more events of a closed week
    write_log(inbox / "more.csv", week(5)[:1])
    assert watcher.scan_twice() == [4]
    assert [file["late"] for file in Stream.open(run).files if file["name"] == "log.csv"] == [0, 5]


def test_late_events_are_reported(watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path) -> None:
    write_log(inbox / "log.csv", [("p1", "p2", day(2, 6)), *week(3), *week(4)[:1]])
    assert watcher.scan_twice() == [3]
    assert watcher.messages[0] == f"log.csv: 1 of 18 events lie before {day(3)} and are too late"
    assert [file["late"] for file in Stream.open(run).files] == [1]
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


def test_a_file_that_changes_while_it_is_read_is_read_again(run: Path, inbox: Path) -> None:
    messages: list[str] = []
    log = write_log(inbox / "log.csv", week(3))

    def read(file: Path) -> dysat.Events:
        events = read_log(file)
        if not messages:
            write_log(log, [*week(3), *week(4)[:1]])
        return events

    with updating(Run.open(run), device="cpu") as updater:
        feed = Feed(inbox, read, tell=messages.append)
        assert [list(feed.scan(updater)) for _ in range(2)] == [[], []]
        assert messages == [f"{log}: changed while it was read; try again when it is complete"]
        assert [update.step for _ in range(2) for update in feed.scan(updater)] == [3]


def test_a_missing_folder(run: Path, inbox: Path, watcher: Watcher) -> None:
    with pytest.raises(ModelError, match="nowhere: no such folder to follow"):
        Feed(inbox / "nowhere", read_log)
    inbox.rmdir()
    with pytest.raises(ModelError, match="inbox: cannot be followed: No such file or directory"):
        watcher.scan()


# Files that change while a later file is complete


def touch(file: Path) -> None:
    """Change the time of a file, and nothing else."""
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("was_read", [False, True], ids=["before it is read", "after it is read"])
def test_a_touched_file_is_not_lost(
    watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path, was_read: bool
) -> None:
    write_log(inbox / "a.csv", week(3)[:9])
    if was_read:
        watcher.scan_twice()
    write_log(inbox / "b.csv", [*week(3)[9:], *week(4)[:1]])
    assert watcher.scan() == []
    touch(inbox / "a.csv")
    assert watcher.scan() == [] and watcher.scan() == [3]  # b.csv is complete one scan earlier
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


def test_a_file_that_grows_is_not_lost(watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path) -> None:
    write_log(inbox / "a.csv", week(3)[:4])
    write_log(inbox / "b.csv", [*week(3)[9:], *week(4)[:1]])
    for stop in range(5, 10):
        assert watcher.scan() == []
        write_log(inbox / "a.csv", week(3)[:stop])
    assert watcher.scan() == [] and watcher.scan() == [3]
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


def test_a_file_that_arrives_just_after_a_later_one_is_not_lost(
    watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path
) -> None:
    write_log(inbox / "b.csv", [*week(3)[9:], *week(4)[:1]])
    assert watcher.scan() == []
    write_log(inbox / "a.csv", week(3)[:9])
    assert watcher.scan() == [] and watcher.scan() == [3]
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


def test_a_renamed_file_is_not_lost(watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path) -> None:
    write_log(inbox / "a.csv", week(3)[:9])
    watcher.scan_twice()
    write_log(inbox / "b.csv", [*week(3)[9:], *week(4)[:1]])
    assert watcher.scan() == []
    (inbox / "a.csv").rename(inbox / "c.csv")
    assert watcher.scan() == [] and watcher.scan() == [3]
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


@pytest.mark.parametrize("in_time", [False, True], ids=["repaired late", "repaired in time"])
def test_events_of_a_file_that_becomes_unreadable_are_kept(
    watcher: Watcher, inbox: Path, run: Path, base: Path, tmp_path: Path, in_time: bool
) -> None:
    """A writer pauses in the middle of a line."""
    rows, log = week(3), inbox / "a.csv"
    write_log(log, rows[:10])
    watcher.scan_twice()
    with open(log, "a") as file:
        file.write("p1,p2,20")
    watcher.scan_twice()
    assert watcher.messages[-1].endswith("; the 10 events that were read before are kept")
    if in_time:
        write_log(log, rows)
        watcher.scan_twice()
    write_log(inbox / "b.csv", week(4)[:1])
    assert watcher.scan_twice() == [3]
    assert state(run)[:4] == expected(base, tmp_path, *(rows if in_time else rows[:10]))
    if not in_time:
        write_log(log, [*rows, *week(4)[1:2]])
        assert watcher.scan_twice() == []
        assert f"a.csv: changed since it was taken in; its 16 events before {day(4)} are ignored" in watcher.messages


def test_events_are_kept_when_their_file_changes_while_it_is_read_again(
    run: Path, inbox: Path, base: Path, tmp_path: Path
) -> None:
    changes = 0
    log, later = write_log(inbox / "a.csv", week(3)[:8]), inbox / "b.csv"

    def read(file: Path) -> dysat.Events:
        nonlocal changes
        events = read_log(file)
        if file == log and later.exists() and not changes:
            changes += 1
            write_log(log, week(3)[:9])
        return events

    with updating(Run.open(run), device="cpu") as updater:
        feed = Feed(inbox, read)
        assert [list(feed.scan(updater)) for _ in range(2)] == [[], []]
        touch(log)
        write_log(later, [*week(3)[9:], *week(4)[:1]])
        assert [list(feed.scan(updater)) for _ in range(3)] == [[], [], []] and changes == 1
        assert [update.step for update in feed.scan(updater)] == [3]
    assert state(run)[:4] == expected(base, tmp_path, *week(3))


def test_a_file_that_never_rests_delays_windows_once(
    watcher: Watcher, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysat.runs.feed.LONGEST", 5)
    write_log(inbox / "restless.csv", week(3)[:1])

    def scans(number: int) -> list[list[int]]:
        found = []
        for _ in range(number):
            touch(inbox / "restless.csv")
            found.append(watcher.scan())
        return found

    write_log(inbox / "a.csv", [*week(3), *week(4)[:1]])
    assert scans(7) == [[], [], [], [], [], [], [3]]
    assert watcher.messages[-1] == "restless.csv: still changing; windows no longer wait for it"
    write_log(inbox / "b.csv", week(5)[:1])
    assert scans(2) == [[], [4]]


def test_windows_do_not_wait_for_a_stream_of_new_files(watcher: Watcher, inbox: Path) -> None:
    """Every scan finds a new file; each window waits only for the files that were there when it was over."""
    found = []
    for number in range(3, 9):
        write_log(inbox / f"{number}.csv", week(number)[:3])
        found.append(watcher.scan())
    assert found == [[], [], [], [3], [4], [5]]


def test_a_window_stays_open_when_the_file_that_ended_it_is_removed(watcher: Watcher, inbox: Path) -> None:
    write_log(inbox / "a.csv", week(3))
    write_log(inbox / "b.csv", week(4)[:1])
    watcher.scan()
    touch(inbox / "a.csv")
    assert watcher.scan() == []  # waits for a.csv
    (inbox / "b.csv").unlink()
    assert watcher.scan_twice() == []
    write_log(inbox / "b.csv", week(4)[:1])
    assert watcher.scan_twice() == [3]


# Started again


def test_files_taken_in_are_not_taken_in_again(run: Path, inbox: Path) -> None:
    write_log(inbox / "3.csv", week(3))
    write_log(inbox / "4.csv", week(4))
    assert len(once(run, inbox)) == 1
    before, messages = state(run), []
    assert once(run, inbox, messages.append) == [] and state(run) == before
    assert messages[0] == f"{inbox / '3.csv'}: its events were already taken in (as 3.csv), up to {day(4)}"
    write_log(inbox / "5.csv", week(5)[:1])
    assert [update.step for update in once(run, inbox)] == [4]


def killed(run: Path, inbox: Path, number: int) -> None:
    be_quick()
    die_at(number, str(run))
    once(run, inbox)


@pytest.mark.slow
def test_killed_at_writes_and_started_again(run: Path, inbox: Path, base: Path, tmp_path: Path) -> None:
    """Between windows and inside them; no event is lost or counted twice."""
    write_log(inbox / "a.csv", weeks(3, 6)[::2])
    write_log(inbox / "b.csv", weeks(3, 6)[1::2])
    whole = copy(run, tmp_path / "whole")
    once(whole, inbox)
    kills = 0
    for number in (7, 27, 18, 40, 33):
        code = in_process(killed, run, inbox, number)
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
    once(run, inbox)
    assert state(run)[:4] == state(whole)[:4] == expected(base, tmp_path, *weeks(3, 5)) and kills >= 2
    facts = [[{**file, "taken": 0} for file in Stream.open(folder).files] for folder in (run, whole)]
    assert facts[0] == facts[1]


# Parts


def test_merged_events_equal_those_of_one_file(tmp_path: Path) -> None:
    parts = [read_log(write_log(tmp_path / f"{i}.csv", weeks(3, 5)[i::3])) for i in range(3)]
    merged = merge_events(parts)
    whole = read_log(write_log(tmp_path / "all.csv", weeks(3, 5)))
    assert dysat.build_snapshots(merged, every="1w").equals(dysat.build_snapshots(whole, every="1w"))


def test_merging_numbers_and_texts_gives_texts(tmp_path: Path) -> None:
    numbers = read_log(write_log(tmp_path / "a.csv", [(7, 8, day(0)), (8, 9, day(1))]))
    texts = read_log(write_log(tmp_path / "b.csv", [("ann", 7, day(1))]))
    merged = merge_events([numbers, texts])
    assert sorted(merged.labels.tolist()) == ["7", "8", "9", "ann"]


def test_merging_keeps_kinds_and_steps(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("src,dst,time\n1,1,0\n2,1,1\n")
    (tmp_path / "b.csv").write_text("src,dst,time\n1,2,1\n")
    parts = [read_log(tmp_path / name, kinds=("user", "item"), time_unit="step") for name in ("a.csv", "b.csv")]
    merged = merge_events(parts)
    assert merged.kind_names == ("user", "item") and merged.clock == "step" and len(merged.labels) == 4


def test_a_folder_of_parts_counts_as_one_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    table = read_log(write_log(tmp_path / "all.csv", week(3))).to_polars()
    for i in range(2):
        table[i::2].write_parquet(tmp_path / "parts" / f"{i}.parquet")
    (update,) = take_in(run, tmp_path / "parts")
    assert update.links == 15
    file = EventFile.read(tmp_path / "parts", read_log)
    os.rename(tmp_path / "parts", tmp_path / "moved")  # noqa: PTH104
    assert EventFile.read(tmp_path / "moved", read_log).sha256 == file.sha256
    with pytest.raises(ModelError, match=r"moved: its events were already taken in \(as parts\)"):
        take_in(run, tmp_path / "moved")
