"""The program: its commands register here, and it runs them."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

import dysat
from dysat.cli.options import as_options
from dysat.errors import DysatError

INTERRUPTED = 130  # what a shell says of a program ended by Ctrl-C
USAGE_ERROR: Any = typer.BadParameter.__base__  # of Click, or of the Click that Typer brings along

app = typer.Typer(
    help="Learn node embeddings of graphs that change over time, and predict their next links.",
    epilog="Start with [bold]dysat fit uci[/bold], or [bold]dysat fit --help[/bold] for a log of your own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class StoppedError(Exception):
    """Ctrl-C was heard, and everything is in order; the message says how to go on."""


def main() -> NoReturn:
    """Run the program; a mistake gets one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show … shows ?
    try:
        code = app(standalone_mode=False)
    except DysatError as problem:
        _fail(as_options(str(problem)))
    except USAGE_ERROR as problem:
        _fail(f"{problem.format_message()} (see {problem.ctx.command_path if problem.ctx else 'dysat'} --help)")
    except StoppedError as stopped:
        _stop(str(stopped))
    except (typer.Abort, KeyboardInterrupt):
        _stop("stopped")
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as problem:
        _fail(str(problem))
    if code == INTERRUPTED:  # which some versions of Typer return instead of raising
        _stop("stopped")
    sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str) -> NoReturn:
    typer.echo(f"dysat: {message}", err=True)
    sys.exit(INTERRUPTED)


def _fail(message: str) -> NoReturn:
    typer.echo(f"dysat: {' '.join(message.split())}", err=True)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"dysat {dysat.__version__}")
        raise typer.Exit
