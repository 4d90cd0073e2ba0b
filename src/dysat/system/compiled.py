"""The functions of native.c: compiled once for this machine, kept in the user's cache, called with tensors.

Where there is no C compiler, or anything else is amiss, there are none, and whoever asks does without.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("native.c")
# No contraction and no reordering: what a row comes to must not depend on where in an array it stands.
FLAGS = ("-std=gnu11", "-O2", "-ftree-vectorize", "-march=native", "-ffp-contract=off", "-fno-math-errno",
         "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared")  # fmt: skip
PATIENCE = 120  # seconds for the compiler

# What each function takes before the number of threads: arrays of float32 (x; r: with rows a stride apart), of float64
# (d), of int64 (i), of int32 (h) and of bytes (b), whole numbers (n) and others (f, or e with
# twice the digits).
SIGNATURES = {
    "weighted_sum": "xxiiixxnnnn",
    "pair_dot": "xxiixnnn",
    "elu_backward": "xxxn",
    "segment_sum": "xiixnn",
    "softmax": "xiixnn",
    "softmax_backward": "xxiixnn",
    "entry_logits": "rrxiixnnnnf",
    "entry_logits_backward": "xxxxnnf",
    "history_attention": "xxxiiixxxnnn",
    "history_attention_backward": "xxxxxiiixxiiixxxxxnnnnn",
    "dropout": "xxnnnf",
    "head_dots": "xxxnnnn",
    "head_dots_backward": "xxxxxxxnnnn",
    "transpose": "iiiiiinn",
    "draw_contexts": "hhiiiidinnnn",
    "three_steps": "iiddiiidnn",
    "standings": "xxdnnn",
    "bin_sums": "bihdddnnn",
    "best_splits": "diinnneee",
    "tree_sums": "diiidddnnnn",
}
_TYPES = {
    "x": torch.float32,
    "r": torch.float32,
    "d": torch.float64,
    "i": torch.int64,
    "h": torch.int32,
    "b": torch.uint8,
}
_C_TYPES = {**dict.fromkeys(_TYPES, ctypes.c_void_p), "n": ctypes.c_int64, "f": ctypes.c_float, "e": ctypes.c_double}


class Native:
    """The functions by name; `alone` if they must do with one thread."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions = {}
        for name, signature in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = [*(_C_TYPES[kind] for kind in signature), ctypes.c_int64]
            function.restype = None
            self._functions[name] = function
        self.alone = not _shares_threads(library)

    def __call__(self, name: str, *args: Tensor | float | None) -> None:
        """Call one, on as many threads as torch uses. What it writes must lie in order; what it reads is made to."""
        given: list[Tensor | float | None] = []
        for kind, arg in zip(SIGNATURES[name], args, strict=True):
            if isinstance(arg, Tensor):
                if arg.dtype != _TYPES[kind] or not arg.is_cpu:
                    raise TypeError(f"{name}: {arg.dtype} on {arg.device} is not {_TYPES[kind]} on the CPU")
                arg = arg if kind == "r" else arg.contiguous()
            given.append(arg)
        threads = 1 if self.alone else torch.get_num_threads()
        self._functions[name](*[a.data_ptr() if isinstance(a, Tensor) else a for a in given], threads)


@cache
def native() -> Native | None:
    """The compiled functions, or None: DYSAT_NATIVE=0, no compiler, nowhere to keep them. The first call compiles."""
    if os.environ.get("DYSAT_NATIVE", "1") == "0" or sys.platform == "win32":
        return None
    try:
        compiler = _compiler()
        return None if compiler is None else _load(compiler, _cache_folder())
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError):
        return None


def _compiler() -> list[str] | None:
    """`$CC`, or the first that is there."""
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        return named if shutil.which(named[0]) else None
    return next(([found] for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dysat"


def _load(compiler: list[str], folder: Path) -> Native:
    """From the cache, or compiled into it."""
    path = folder / f"native-{_digest(compiler)}.so"
    if path.exists():
        try:
            return Native(ctypes.CDLL(str(path)))
        except (OSError, AttributeError):
            pass  # what somebody else left there, or half of it
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        made = Path(beside) / path.name
        _run([*compiler, *FLAGS, str(SOURCE), "-o", str(made), "-lm"])
        made.replace(path)  # whole or not at all, whoever else does the same
    return Native(ctypes.CDLL(str(path)))


def _digest(compiler: list[str]) -> str:
    """Of what machine code depends on: what is predefined names compiler, version and the processor's abilities."""
    predefined = _run([*compiler, *FLAGS, "-dM", "-E", "-x", "c", os.devnull])
    parts = (SOURCE.read_bytes(), " ".join([*compiler, *FLAGS]).encode(), predefined)
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _run(command: list[str]) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True)
    return done.stdout


def _shares_threads(library: ctypes.CDLL) -> bool:
    """Whether torch and these functions have one pool of threads: two that spin while they wait are slow."""
    try:
        torch_cpu = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        pools = {ctypes.cast(used.omp_get_num_threads, ctypes.c_void_p).value for used in (library, torch_cpu)}
    except (OSError, AttributeError):
        return False
    return len(pools) == 1
