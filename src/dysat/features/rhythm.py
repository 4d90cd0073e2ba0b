"""The hours of a day and the days of a week: which windows of the past lie as the next one does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dysat.data.windows import DAY
from dysat.features.link_memory import Snapshots

Reals = NDArray[np.float64]
PERIODS = (DAY, 7 * DAY)
FADING = 0.6  # what a day, or a week, counts less than the one after it
FARTHEST = 8  # days and weeks that are looked back: 0.6⁸ is 2 %
TAUGHT = 3  # those whose windows teach what the next one brings
HALF = 0.5  # of a window


def shares(snapshots: Snapshots) -> Reals:
    """What each window and the next one, moved back by 1, 2, … days and weeks, have in common.  # [periods, back, T]

    It is a part of the wider of the two. The next window begins where the last one ends and is as wide. Windows of more
    than half a day, or half a week, have no rhythm of that length; numbered steps are too close together to have one.
    """
    now = snapshots[-1].stop
    starts, stops = (np.array([getattr(s, end) - now for s in snapshots]) for end in ("start", "stop"))
    width = -starts[-1]
    found = np.zeros((len(PERIODS), FARTHEST, len(snapshots)))
    for period, part in zip(PERIODS, found, strict=True):
        if 0 < 2 * width <= period:
            begin = -period * np.arange(1, FARTHEST + 1)[:, None]
            both = np.minimum(begin + width, stops) - np.maximum(begin, starts)
            part[:] = np.maximum(both, 0) / np.maximum(width, stops - starts)
    return found


def recurrence(snapshots: Snapshots) -> Reals:
    """What each window counts for the next one, by the time of day and of the week.  # [periods, T]"""
    fading = np.power(FADING, np.arange(FARTHEST))
    counts: Reals = np.einsum("pbt,b->pt", shares(snapshots), fading)
    return counts


def like_the_next(snapshots: Snapshots) -> list[int]:
    """The windows that have at least half in common with the next one, one to three days or weeks before it."""
    return np.flatnonzero((shares(snapshots)[:, :TAUGHT] >= HALF).any(axis=(0, 1))).tolist()
