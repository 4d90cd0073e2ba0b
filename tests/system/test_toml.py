"""TOML as written is read back by the standard library."""

from __future__ import annotations

import tomllib

from dysat.system.text.toml import as_toml


def test_values_and_tables_round_trip() -> None:
    config = {
        "text": 'say "hi"\\\n\t\x7f zoë',
        "whole": -3,
        "real": 1e-05,
        "yes": True,
        "list": ["a", 1, 2.5, [True]],
        "empty": [],
        "table": {"name": "x", "steps": (1, 2)},
    }
    expected = config | {"table": {"name": "x", "steps": [1, 2]}}
    assert tomllib.loads(as_toml(config)) == expected


def test_none_is_left_out() -> None:
    assert as_toml({"a": None, "b": 1, "c": {"d": None, "e": 2}}) == "b = 1\n\n[c]\ne = 2\n"
