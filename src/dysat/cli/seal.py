"""The command seal: accept an edit of config.toml."""

from __future__ import annotations

from dysat.cli.app import app
from dysat.cli.learn import RunFolder
from dysat.cli.options import Json, check_events
from dysat.cli.output.show import new_console, print_json
from dysat.runs.update import seal_run


@app.command()
def seal(run: RunFolder, as_json: Json = False) -> None:
    """Accept an edit of the table [events] in the config.toml of a run: how the next log is read.

    What a run depends on is sealed when it is created, and an edit is refused. Edits of other values cannot be
    accepted, because the model was trained with them; [bold]dysat fit[/bold] makes a new run with other values.
    """
    changed = seal_run(run, lambda made: check_events(made, str(run)))
    if as_json:
        return print_json({"run": str(run), "changed": changed})
    text = f"sealed with the changed {', '.join(changed)}" if changed else "sealed; nothing has changed"
    return new_console().print(f"{run}: {text}", highlight=False, soft_wrap=True, markup=False)
