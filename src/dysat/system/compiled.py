"""The functions of native.c: compiled once per machine, stored in the user's cache, called with tensors.

Without a C compiler, or if compiling fails for any reason, `native()` is None and callers use torch instead.
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
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("native.c")
# No contraction and no reordering: the result of a row must not depend on its position in the array.
FLAGS = ("-std=gnu11", "-O2", "-ftree-vectorize", "-march=native", "-ffp-contract=off", "-fno-math-errno",
         "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared")  # fmt: skip
COMPILE_TIMEOUT = 120  # seconds

# Argument types of each function, one letter each; the number of threads follows as the last argument.
# Arrays: float32 (x), float32 with strided rows (r), float64 (d), int64 (i), int32 (h), bytes (b).
# Numbers: int64 (n), float32 (f), float64 (e).
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
    "few_queries": "xxxxxiiixxxnnnn",
    "few_queries_backward": "xxxxxiiixxxxxxnnnnn",
    "dropout": "xxnnnf",
    "head_dots": "xxxnnnn",
    "head_dots_backward": "xxxxxxxnnnn",
    "transpose": "iiiiiinn",
    "draw_contexts": "hhiiiidinnnn",
    "add_at_float64": "didn",
    "add_at_float32": "xixn",
    "add_at_int64": "iiin",
    "add_at_int32": "hihn",
    "both_ends": "iiiinn",
    "both_ends_narrow": "iihhnn",
    "three_steps": "iiddiiidnnn",
    "standings": "xxdnnn",
    "bin_edges": "ddnnn",
    "bin_rows": "ddbnnn",
    "grow_trees": "bibiidddhhdiidnnnnneeeeeee",
    "tree_sums": "diiidddnnnn",
    "map_attraction": "xiixxn",
    "map_spread": "xxxnnn",
    "map_collect": "xxxnnn",
}
# Least number of elements of each array, from the numbers of a call and E, the size of its array `_COUNTED`; 0 is any,
# for arrays that others index; callers build these indices themselves, from graphs and trees whose content was checked.
_SIZES: dict[str, Callable[..., tuple[int, ...]]] = {
    "weighted_sum": lambda E, R, H, F, elu: (E * H, 0, R + 1, E, E, R * H * F, R * H * F),
    "pair_dot": lambda E, R, H, F: (R * H * F, 0, R + 1, E, E * H),
    "elu_backward": lambda E, n: (n, n, n),
    "segment_sum": lambda E, R, H: (E, R + 1, E // max(1, H), R * H),
    "softmax": lambda E, R, H: (E, R + 1, E // max(1, H), E),
    "softmax_backward": lambda E, R, H: (E, E, R + 1, E // max(1, H), E),
    "entry_logits": lambda E, R, H, s, r, slope: (0, R * H, E, R + 1, E, E * H),
    "entry_logits_backward": lambda _, E, H, slope: (E * H, E * H, E, E * H),
    "history_attention": lambda E, Q, H, F: (Q * H * F, 0, 0, Q + 1, E, E, E * H, E * H, Q * H * F),
    "history_attention_backward": lambda E, Q, S, T, H, F: (
        *(Q * H * F, Q * H * F, Q * H * F, 2 * S * H * F, 2 * T * H * F, Q + 1, E, E, E * H, E * H, S + 1, E, E),
        *(2 * E * H, 2 * PARTS * T * H * F, Q * H * F, 2 * S * H * F, 2 * T * H * F),
    ),
    "few_queries": lambda E, Q, D, H, F: (
        *(Q * H * F, 0, D * H * F, D * H * F, 0, E, Q + 1, E, E * H, E * H, Q * H * F),
    ),
    "few_queries_backward": lambda E, Q, D, K, H, F: (
        *(Q * H * F, Q * H * F, 0, D * H * F, D * H * F, E, Q + 1, E, E * H, E * H),
        *(PARTS * (2 * D * H * F + K * H), Q * H * F, E * D, 2 * D * H * F + K * H),
    ),
    "dropout": lambda E, n, key, dropped, scale: (n, n),
    "head_dots": lambda E, A, K, H, F: (A * H * F, K * H * F, A * K * H),
    "head_dots_backward": lambda E, A, K, H, F: (
        *(A * K * H, A * H * F, K * H * F, A * H * F, PARTS * K * H * F, A * H * F, K * H * F),
    ),
    "transpose": lambda _, E, S: (E, E, S + 1, E, E, E),
    "draw_contexts": lambda E, length, window, B, count: (0, 0, 0, 0, 0, B, B * count, B * count),
    **dict.fromkeys(("add_at_float64", "add_at_float32", "add_at_int64", "add_at_int32"), lambda E, n: (n, n, 0)),
    "both_ends": lambda _, E, N: (E, N + 1, 2 * E, 2 * E),
    "both_ends_narrow": lambda _, E, N: (E, N + 1, 2 * E, 2 * E),
    "three_steps": lambda E, U, N, W: (N + 1, E, E * W, E * W, U, U + 1, 0, 0),
    "standings": lambda E, F, B, n: (F * B, F * n, B * F),
    "bin_edges": lambda E, F, n, B: (F * n, F * B),
    "bin_rows": lambda E, n, F, B: (n * F, F * B, F * n),
    "grow_trees": lambda E, n, K, B, levels, R, *rates: (
        *(0, R * K, n, n + 1, 0, 2 * n, (2 * K * B) << levels, (TREE_THREADS * K * B) << levels, n, n, n),
        *(R * ((1 << levels) - 1), R * ((1 << levels) - 1), R << levels),
    ),
    "tree_sums": lambda E, n, F, R, M: (n * F, R * M, R * M, R * M, R * M, R * M, n),
    "map_attraction": lambda E, N: (2 * N, N + 1, E, E, 2 * N),
    "map_spread": lambda E, N, C, G: (2 * N, C * N, C * G * G),
    "map_collect": lambda E, N, C, G: (2 * N, C * G * G, C * N),
}
_COUNTED = {
    "weighted_sum": 3,
    "pair_dot": 3,
    "entry_logits": 4,
    "history_attention": 4,
    "history_attention_backward": 6,
    "few_queries": 7,
    "few_queries_backward": 7,
    "three_steps": 1,
    "map_attraction": 2,
}
PARTS = 64  # the same as in native.c
# More threads than these wait for each other longer than they save: a tree is grown level by level.
TREE_THREADS = 8
_TYPES = {
    "x": torch.float32,
    "r": torch.float32,
    "d": torch.float64,
    "i": torch.int64,
    "h": torch.int32,
    "b": torch.uint8,
}
_C_TYPES = {**dict.fromkeys(_TYPES, ctypes.c_void_p), "n": ctypes.c_int64, "f": ctypes.c_float, "e": ctypes.c_double}


_MOST_THREADS = {"grow_trees": TREE_THREADS}


class Native:
    """Calls the functions by name; `single_threaded` if they may use one thread only."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions = {}
        for name, signature in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = [*(_C_TYPES[kind] for kind in signature), ctypes.c_int64]
            function.restype = None
            self._functions[name] = function
        self.single_threaded = not _shares_threads(library)
        # Torch's own library of matrix products has a limit of its own once `torch.set_num_threads` was called.
        limits = (library, "omp_set_num_threads"), (_torch_library(), "MKL_Set_Num_Threads_Local")
        self._limits = [getattr(part, name) for part, name in limits if hasattr(part, name)]

    def limit_this_thread(self, cores: int = 1) -> None:
        """Let torch and these functions use this many cores when they are called from this thread, and only then."""
        torch.get_num_threads()  # the first call in a thread sets the limit of the process
        for limit in self._limits:
            limit(cores)

    def __call__(self, name: str, *args: Tensor | float | None) -> None:
        """Call a function on as many threads as torch uses. Inputs are made contiguous; outputs must already be."""
        values: list[Tensor | float | None] = []
        for kind, arg in zip(SIGNATURES[name], args, strict=True):
            if isinstance(arg, Tensor):
                if kind not in _TYPES or arg.dtype != _TYPES[kind] or not arg.is_cpu:
                    raise TypeError(f"{name}: {arg.dtype} on {arg.device} is not {_TYPES.get(kind, 'a number')}")
                arg = arg if kind == "r" else arg.contiguous()
            values.append(arg)
        _check_sizes(name, args)
        most = torch.get_num_threads()
        threads = 1 if self.single_threaded else min(most, _MOST_THREADS.get(name, most))
        self._functions[name](*[v.data_ptr() if isinstance(v, Tensor) else v for v in values], threads)


def _check_sizes(name: str, args: Sequence[Tensor | float | None]) -> None:
    """Raise if an array is shorter than what the function reads or writes."""
    arrays = SIGNATURES[name].rstrip("nfe")
    counted, numbers = args[_COUNTED.get(name, 0)], args[len(arrays) :]
    sizes = _SIZES[name](counted.numel() if isinstance(counted, Tensor) else 0, *numbers)
    for position, (arg, size) in enumerate(zip(args, sizes, strict=False)):
        if isinstance(arg, Tensor) and arg.numel() < size:
            raise ValueError(f"{name}: array {position} has {arg.numel():,} elements, not {size:,}")
        if isinstance(arg, Tensor) and arrays[position] == "r" and arg.numel() and arg.stride(1) != 1:
            raise ValueError(f"{name}: the elements of a row of array {position} do not follow each other")


@cache
def native() -> Native | None:
    """Return the compiled functions; the first call compiles them.

    None if DYSAT_NATIVE=0, if there is no compiler or if the cache folder cannot be written.
    """
    if os.environ.get("DYSAT_NATIVE", "1") == "0" or sys.platform == "win32":
        return None
    try:
        compiler = _compiler()
        return None if compiler is None else _load(compiler, _cache_folder())
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError):
        return None


def _compiler() -> list[str] | None:
    """`$CC` if it is set, else the first of cc, gcc and clang that is installed."""
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        return chosen if shutil.which(chosen[0]) else None
    return next(([path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dysat"


def _load(compiler: list[str], folder: Path) -> Native:
    """Load the library from the cache; compile it if it is missing or broken."""
    path = folder / f"native-{_digest(compiler)}.so"
    if path.exists():
        try:
            return Native(ctypes.CDLL(str(path)))
        except (OSError, AttributeError):
            pass  # damaged, or of another program
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        library = Path(temporary) / path.name
        _run([*compiler, *FLAGS, str(SOURCE), "-o", str(library), "-lm"])
        library.replace(path)  # atomic: other processes may compile at the same time
    return Native(ctypes.CDLL(str(path)))


def _digest(compiler: list[str]) -> str:
    """Hash everything the machine code depends on: source, flags, compiler and instruction set."""
    macros = _run([*compiler, *FLAGS, "-dM", "-E", "-x", "c", os.devnull])  # name the compiler and the instruction set
    parts = (SOURCE.read_bytes(), " ".join([*compiler, *FLAGS]).encode(), macros)
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _run(command: list[str]) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMPILE_TIMEOUT, check=True)
    return done.stdout


def _shares_threads(library: ctypes.CDLL) -> bool:
    """Whether torch and these functions use the same OpenMP pool; two pools that spin while waiting are slow."""
    other = _torch_library()
    try:
        pools = {ctypes.cast(each.omp_get_num_threads, ctypes.c_void_p).value for each in (library, other) if each}
    except AttributeError:
        return False
    return other is not None and len(pools) == 1


def _torch_library() -> ctypes.CDLL | None:
    """The library of torch for CPUs; None if its file has another name."""
    try:
        return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return None
