"""Spellings of one label, several labels in a cell, and two id spaces in one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dysat
from dysat import EventsError, read_events
from dysat.data.reading.spelling import normal_form

WORDS = st.lists(st.text(st.characters(categories=("Ll", "Nd")), min_size=1, max_size=5), min_size=1, max_size=3)


def table(left: list[Any], right: list[Any], src: str = "src", dst: str = "dst") -> pl.DataFrame:
    times = [f"2024-01-{i % 28 + 1:02}" for i in range(len(left))]
    return pl.DataFrame({src: left, dst: right, "time": times})


def ends(events: dysat.Events) -> list[tuple[object, object]]:
    return list(zip(events.labels[events.src].tolist(), events.labels[events.dst].tolist(), strict=True))


def normal(*labels: str | None) -> list[str | None]:
    return normal_form(pl.Series(labels, dtype=pl.String)).to_list()


@settings(deadline=None)
@given(WORDS, st.sampled_from([" ", "  ", "\t", "\u00a0 "]), st.booleans())
def test_spellings_have_one_normal_form(words: list[str], blank: str, upper: bool) -> None:
    plain = " ".join(words)
    spelled = blank + blank.join(words) + blank
    form = normal(spelled.upper() if upper and plain.upper().lower() == plain else spelled)[0]
    assert form == normal(plain)[0] == normal(form)[0]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Ann Müller <Ann@X.org>", "ann@x.org"),
        ('"Doe, Ann; PhD" <Ann@x.org> ', "ann@x.org"),
        ("Doe, Ann <ann@x.org>", "ann@x.org"),
        ("ann@x.org <ann@x.org>", "ann@x.org"),
        ("<ann@x.org>", "ann@x.org"),
        ("MAILTO:ann@x.org", "ann@x.org"),
        ("a@x.org, Bob <bob@x.org>", "a@x.org, bob <bob@x.org>"),  # several addresses are not one
        ("Ann <admin>", "ann <admin>"),
        ("E\u0301va", "\u00e9va"),
        ("   ", ""),
        (None, None),
    ],
)
def test_normal_form(label: str | None, expected: str | None) -> None:
    assert normal(label, "x") == [expected, "x"]


def test_labels_are_merged_if_asked_for_and_noted_if_not() -> None:
    log = table(["Ann", "ann ", "Bob <b@x.org>"], ["b@x.org", "cy", "ANN"])
    events = read_events(log)
    assert events.num_nodes == 6
    assert events.notes[1:] == (
        "5 labels differ only in case, blanks or the form of an address, as 'Ann' and 'ann '; "
        "normalise_labels=True merges them",
    )
    merged = read_events(log, normalise_labels=True)
    assert ends(merged) == [("ann", "b@x.org"), ("ann", "cy"), ("b@x.org", "ann")] and len(merged.notes) == 1
    with pytest.raises(EventsError, match="row 1: column 'src' is empty"):
        read_events(table([" ", "a"], ["b", "c"]), normalise_labels=True)


def test_labels_of_two_kinds_are_not_compared() -> None:
    log = table(["Ann", "Bob"], ["ann", "bob"])
    assert len(read_events(log, kinds=("user", "item")).notes) == 1
    assert len(read_events(log).notes) == 2
    assert read_events(table([1, 2], [2, 3]), normalise_labels=True).labels.tolist() == [1, 2, 3]


# --- several destinations ---------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "b@x", "C d", "é"]), min_size=1, max_size=4), min_size=2, max_size=5))
def test_one_event_per_destination(cells: list[list[str]]) -> None:
    log = table([*map(str, range(len(cells)))], [" ;".join(["", *cell, ""]) for cell in cells])
    assert ends(read_events(log, split_dst=";")) == [(str(i), dst) for i, cell in enumerate(cells) for dst in cell]


def test_split_rows_keep_their_weight_place_and_quotes(tmp_path: Any) -> None:
    path = tmp_path / "mail.csv"
    path.write_text('from,to,sent,n\na,"""Doe, B"" <b@x>, c@x",2024-01-01,2\nb,c@x,2024-01-02,1\n')
    events = read_events(path, weight="n", split_dst=",")
    assert ends(events) == [("a", '"Doe, B" <b@x>'), ("a", "c@x"), ("b", "c@x")] and events.total_weight == 5
    assert "3 events from 2 rows: some have several destinations" in events.notes
    path.write_text("from,to,sent\na,b;c,2024-01-01\nb,;,2024-01-02\nb,c,2024-01-02\n")
    with pytest.raises(EventsError, match="line 3: column 'to' is empty"):
        read_events(path, split_dst=";")
    assert len(read_events(path, split_dst=";", bad_rows="skip")) == 3
    path.write_text("from,to,sent\na,b;c,2024-01-01\nb,d;e,soon\n")
    with pytest.raises(EventsError, match="line 3: time 'soon'"):
        read_events(path, split_dst=";")


def test_several_addresses_in_a_label_are_noted() -> None:
    events = read_events(table(["a@x", "b@x"], ["b@x; c@x", "a@x"]))
    assert (
        "1 labels hold several addresses, as 'b@x; c@x'; split_dst=';' makes one event per address" in events.notes[-1]
    )
    assert len(read_events(table(["Doe, A", "x;y"], ["b@x", "a@x"])).notes) == 1
    for options, message in (
        ({"split_dst": ""}, "split_dst=''"),
        ({"split_dst": ";", "pair_separator": "_"}, "not both"),
    ):
        with pytest.raises(EventsError, match=message):
            read_events(table(["a", "b"], ["b", "c"]), **options)  # type: ignore[arg-type]


# --- two id spaces ----------------------------------------------------------------------------------------------------


def ratings(num_users: int = 60, num_items: int = 120, number: int = 600) -> tuple[list[int], list[int]]:
    rng = random.Random(0)
    return [rng.randint(1, num_users) for _ in range(number)], [rng.randint(1, num_items) for _ in range(number)]


@pytest.mark.parametrize(
    ("src", "dst", "kinds"),
    [
        ("user", "item", ("user", "item")),
        ("userId", "movieId", ("user", "movie")),
        ("USER_ID", "Movies", ("user", "movie")),
        ("user.id", "channel.id", ("user", "channel")),
        ("customer_no", "product code", ("customer", "product")),
        ("userid", "tagid", ("user", "tag")),
        ("drug", "disease", ("drug", "disease")),
    ],
)
def test_columns_that_name_different_things_suggest_kinds(src: str, dst: str, kinds: tuple[str, str]) -> None:
    log = table(*ratings(), src=src, dst=dst)
    events = read_events(log, src, dst)
    assert events.notes[-1].endswith(f"are taken for the same nodes; if they are not, state kinds={kinds!r}")
    apart = read_events(log, src, dst, kinds=kinds)
    assert apart.num_nodes == 180 and not any("kinds" in note for note in apart.notes)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("from", "to"),
        ("sender", "recipient"),
        ("source", "target"),
        ("user", "friend"),
        ("from_user", "to_user"),
        ("src_page", "dst_page"),
        ("payer_account", "payee_account"),
        ("author", "reader"),
        ("caller", "callee"),
        ("u", "v"),
        ("user1", "user2"),
    ],
)
def test_two_roles_of_one_thing_do_not(src: str, dst: str) -> None:
    events = read_events(table(*ratings(), src=src, dst=dst), src, dst)
    assert not any("kinds" in note for note in events.notes)


def test_different_labels_need_no_kinds() -> None:
    users, items = ratings()
    log = table([f"u{n}" for n in users], [f"i{n}" for n in items], src="user", dst="item")
    assert not any("kinds" in note for note in read_events(log).notes)


def test_columns_without_names_suggest_kinds_only_if_the_numbers_do(tmp_path: Any) -> None:
    def notes(src: list[int], dst: list[int], top: str = "") -> str:
        rows = "".join(f"{a} {b} {1_700_000_000 + i}\n" for i, (a, b) in enumerate(zip(src, dst, strict=True)))
        (tmp_path / "net.txt").write_text(top + rows)
        return str(read_events(tmp_path / "net.txt").notes)

    users, items = ratings()
    assert "kinds=('user', 'item')" in notes(users, items)
    assert "kinds" not in notes(users, items, "% asym unweighted\n")  # KONECT says that it is not bipartite
    rng = np.random.default_rng(0)
    ring = rng.integers(1, 100, (400, 2))
    both = np.concatenate([ring, ring[:, ::-1]])  # answers: every pair in both directions
    assert "kinds" not in notes(*both.T.tolist()) and "kinds" not in notes(*ring.T.tolist())
