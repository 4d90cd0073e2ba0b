"""The program: commands register here, and `main` runs them."""

from __future__ import annotations

import io
import os
import sys
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

import dysat
from dysat.cli.options import MODEL_OPTIONS, as_options
from dysat.cli.output.terminal import one_line, say
from dysat.errors import DysatError

INTERNAL = 70  # exit code for an unexpected exception, EX_SOFTWARE
DEBUG = "DYSAT_DEBUG"  # if it is set, an unexpected exception shows its traceback
LONGEST = 500  # characters of its message
INTERRUPTED = 130  # exit code of a program ended by Ctrl-C
USAGE_ERROR: Any = typer.BadParameter.__base__  # Click's own, or that of the Click vendored by Typer

app = typer.Typer(
    help="Learn node embeddings of graphs that change over time, and forecast their next links.",
    epilog="Start with [bold]dysat fit uci[/bold], or [bold]dysat fit --help[/bold] for your own log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class StoppedError(Exception):
    """Ctrl-C stopped the work cleanly; the message says how to continue."""


def main() -> NoReturn:
    """Run the program; a user error prints one line and exits with code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # print ? for characters the terminal cannot show
    try:
        code = _command()(standalone_mode=False)
    except DysatError as problem:
        _fail(as_options(str(problem)))
    except USAGE_ERROR as problem:
        _fail(_usage(problem))
    except StoppedError as stopped:
        _stop(str(stopped))
    except (typer.Abort, KeyboardInterrupt):
        _stop("stopped")
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as problem:
        _fail(str(problem))
    except MemoryError as problem:
        _fail(f"not enough memory: {problem}" if str(problem) else "not enough memory")
    except Exception as problem:
        if os.environ.get(DEBUG):
            raise
        if _out_of_memory(problem):
            _fail("not enough memory; smaller values of the model's options need less")
        _fail(
            f"internal error: {type(problem).__name__}: {str(problem)[:LONGEST]}; this is a bug in dysat, "
            f"please report it; {DEBUG}=1 shows where it happened",
            INTERNAL,
        )
    if code == INTERRUPTED:  # some versions of Typer return it instead of raising
        _stop("stopped")
    sys.exit(code if isinstance(code, int) else 0)


@cache
def _command() -> Any:
    """The commands as Typer builds them from their functions, which takes longer than many a command."""
    return typer.main.get_command(app)


def _usage(problem: Any) -> str:
    """The message for a wrong command line; for a flag that is an option of a model it suggests --set."""
    name = str(getattr(problem, "option_name", "")).lstrip("-").replace("-", "_")
    setting = next((word for word in (name, name.removeprefix("no_")) if word in MODEL_OPTIONS), None)
    if setting is not None:
        return f"no option --{name.replace('_', '-')}; options of a model are set with --set {setting}=VALUE"
    return f"{problem.format_message()} (see {problem.ctx.command_path if problem.ctx else 'dysat'} --help)"


def _out_of_memory(problem: Exception) -> bool:
    """Whether torch could not allocate memory, for which it has an error of its own on CUDA only."""
    return type(problem).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(problem)


def _stop(message: str) -> NoReturn:
    say(f"dysat: {one_line(message)}")
    sys.exit(INTERRUPTED)


def _fail(message: str, code: int = 2) -> NoReturn:
    say(f"dysat: {one_line(message)}")
    sys.exit(code)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"dysat {dysat.__version__}")
        raise typer.Exit
