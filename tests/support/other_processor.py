"""Another processor, which chooses other eigenvectors: with other signs, and others of equal eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dysat.features.eigenvectors import lanczos


def choose_other_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `spectrum` find other eigenvectors of the same matrices."""
    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda x: turned(*eigh(x)))
    monkeypatch.setattr("dysat.features.spectrum.lanczos", lambda *args, **how: turned(*lanczos(*args, **how)))


def turned(values: NDArray[Any], vectors: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Eigenvectors with other signs; those of equal eigenvalues span the same plane.  # [k], [N, k] → [k], [N, k]"""
    found = vectors.copy()
    for value in np.unique(values.round(9)):
        columns = np.flatnonzero(values.round(9) == value)
        turn = np.linalg.qr(np.random.default_rng(len(columns)).standard_normal((len(columns),) * 2))[0]
        found[:, columns] = -vectors[:, columns] @ turn
    return values, found
