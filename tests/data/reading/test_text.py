"""Encodings: every one is read like UTF-8 if it is stated, and recognised where that is safe."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from dysat import EventsError, read_events
from dysat.data.reading.text import is_cp1252, recognise_encoding

Write = Callable[[str, str | bytes], Path]
TEXT = "from,to,sent\nJosé,Björn,2024-01-01\nBjörn,Zoë – “z”,2024-01-02\n"
NAMES = ["Björn", "José", "Zoë – “z”"]


@pytest.mark.parametrize(
    ("encoding", "recognised"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", "utf-16-le"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1252", "cp1252"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_encodings_are_recognised_and_noted(
    write: Write, encoding: str, recognised: str | None, pack: Callable[[bytes], bytes]
) -> None:
    path = write("a.csv", pack(TEXT.encode(encoding)))
    events = read_events(path, "from", "to", "sent")
    assert sorted(events.labels.tolist()) == NAMES
    assert events.notes == ((f"text read as {recognised}; encoding= overrides this",) if recognised else ())
    stated = read_events(path, "from", "to", "sent", encoding=encoding)
    assert sorted(stated.labels.tolist()) == NAMES and stated.notes == ()


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.jsonl"])
def test_every_text_format_has_an_encoding(write: Write, name: str) -> None:
    lines = [line.split(",") for line in TEXT.replace("Zoë – “z”", "Zoë").splitlines()]
    text = "\n".join("\t".join(line) for line in lines)
    if name == "a.txt":
        text = text.replace("\t", "  \t ")
    if name == "a.jsonl":
        text = "\n".join(f'{{"from": "{a}", "to": "{b}", "sent": "{t}"}}' for a, b, t in lines[1:])
    for encoding in ("utf-16", "cp1252"):
        assert sorted(read_events(write(name, text.encode(encoding))).labels.tolist()) == ["Björn", "José", "Zoë"]


def test_a_late_byte_that_is_not_utf8_is_recognised_too(write: Write) -> None:
    rows = "".join(f"person{i},person{i + 1},2024-01-01\n" for i in range(4000))
    events = read_events(write("a.csv", f"from,to,sent\n{rows}José,x,2024-01-02\n".encode("cp1252")))
    assert "José" in events.labels.tolist() and "text read as cp1252; encoding= overrides this" in events.notes


def test_damaged_utf8_is_not_taken_for_cp1252(write: Write) -> None:
    rows = "".join(f"Jürgen{i},Björn,2024-01-01\n" for i in range(20)).encode()
    path = write("a.csv", b"from,to,sent\n" + rows + b"J\xfcrgen,b,2024-01-02\n")
    with pytest.raises(EventsError, match=r"a\.csv: is not UTF-8 text \(line 22 has the byte 0xfc\); state encoding="):
        read_events(path)
    assert read_events(path, encoding="latin-1").num_nodes == 23


def test_wrong_encodings_are_refused(write: Write) -> None:
    path = write("a.csv", TEXT.encode("cp1252"))
    with pytest.raises(EventsError, match=r"is not UTF-8 text \(line 2 has the byte 0xe9\)"):
        read_events(path, encoding="utf-8")
    with pytest.raises(EventsError, match=r"is not ascii text \(line 2 has the byte 0xe9\)"):
        read_events(path, encoding="ascii")
    for name in ("klingon", "hex", "base64"):
        with pytest.raises(EventsError, match=f"encoding='{name}' is not an encoding like"):
            read_events(path, encoding=name)


def test_errors_name_the_line_in_any_encoding(write: Write) -> None:
    for encoding in ("utf-16", "cp1252"):
        with pytest.raises(EventsError, match="line 4: time 'soon' is not a date"):
            read_events(write("a.csv", (TEXT + "José,b,soon\n").encode(encoding)))


def test_recognition_depends_on_bytes_alone() -> None:
    assert recognise_encoding("naïve".encode()[:3], whole=False) == "utf-8"  # cut inside a character
    assert recognise_encoding("naïve".encode("cp1252"), whole=True) == "cp1252"
    assert recognise_encoding(b"plain", whole=True) == "utf-8" and recognise_encoding(b"", whole=True) == "utf-8"
    assert not is_cp1252(b"\x00\xe9") and not is_cp1252(b"\x81\xe9")
