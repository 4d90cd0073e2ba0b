"""Facts about a pair that people understand; each feature of a pair belongs to one of them.

Features are made as columns with the name of their fact, so the two cannot get out of step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Column = tuple[str, NDArray[Any]]  # the fact, and the values of a feature [B]

# Of any pair.
LAST_CONTACT = "last contact"
PAST_LINKS = "past links"
COMMON_NEIGHBOURS = "common neighbours"
LONGER_PATHS = "longer paths"
SHARES = "share of contacts"
POSITION = "position"
RHYTHM = "rhythm"
# Of both nodes.
ACTIVITY = "activity"
LAST_ACTIVE = "last active"
TIME_KNOWN = "time known"
REGULARITY = "regularity"
PARTNERS = "partners"
AROUND = "activity around"
# Of an ordered pair, a sender and a receiver.
SENT = "sent"
RECEIVED = "received"
SENDER = "sender"
RECEIVER = "receiver"
ROLES = "roles"
ANSWERS = "answers"
DIRECTED_PATHS = "directed paths"
# Of kinds and attributes.
KINDS = "kinds"
ATTRIBUTE = "attribute "  # followed by the name of the attribute
ATTRIBUTES = "attributes"
COMBINATION = "combined attributes"


def columns_of(fact: str, columns: Iterable[NDArray[Any]]) -> list[Column]:
    """Return columns with the name of their fact."""
    return [(fact, column) for column in columns]


def stacked(columns: Sequence[Column], rows: int) -> NDArray[np.float64]:
    """Return columns as a table, without their facts.  # F times [B] → [B, F]"""
    table = np.empty((len(columns), rows))
    for row, (_, column) in zip(table, columns, strict=True):
        row[:] = column
    return torch.from_numpy(table).T.contiguous().numpy()  # many times faster than NumPy's
