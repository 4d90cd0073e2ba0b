"""Configuration of the documentation site; `make docs` builds it into site/ with warnings as errors."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from sphinx.domains.python import PyObject
from sphinx.util import logging

import dysat
from dysat import LinkModel

logger = logging.getLogger(__name__)
ARRAY = re.compile(r"[~\w.]*ndarray\[tuple\[[~\w.]*Any, \.\.\.\], [~\w.]*dtype\[(?:[^\[\]]|\[[^\[\]]*\])*\]\]")

project = "dysat"
release = dysat.__version__
copyright = "the dysat authors, MIT licence"
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["images"]
default_role = "code"  # docstrings mark code with single backticks

# The site loads nothing from elsewhere: Furo brings its scripts and uses the reader's own fonts.
html_theme = "furo"
html_title = "dysat"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"

myst_enable_extensions = ["colon_fence", "smartquotes"]
myst_heading_anchors = 4  # links such as evaluation.md#negatives

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Shapes", "notes_style"), ("Reference", "notes_style")]
python_maximum_signature_line_length = 88


def escape_markup(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape a docstring outside its examples."""
    in_example = False
    for number, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            lines[number] = _escaped(line)


def _escaped(text: str) -> str:
    """Keep names such as `graph_` and absolute values such as |W| from being read as reStructuredText."""
    parts = text.split("`")  # every second part is code
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|\|", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def keep_files(app: Any, name: str, source: list[str]) -> None:
    """Offer Markdown files outside docs/ as downloads: they are no pages of the site."""
    source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)\)", r"](path:\1)", source[0])


def shorten_signature(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Leave the options of a model to the table below it, and long lists of fields and array types to the docstring."""
    if what == "class" and inspect.isclass(thing):
        if issubclass(thing, LinkModel):
            return "(*, …)", None
        if is_dataclass(thing) and len(signature or "") > 200:
            return "(…)", None
    return (ARRAY.sub("ndarray", signature), returns and ARRAY.sub("ndarray", returns)) if signature else None


def add_options(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Append a table of the constructor's options to the docstring of a model."""
    if what != "class" or not inspect.isclass(thing) or not issubclass(thing, LinkModel) or inspect.isabstract(thing):
        return
    rows = [(option.name, _values(option), repr(option.default), _escaped(option.help)) for option in thing.options()]
    if rows:
        lines += ["", ".. list-table:: Options", "   :header-rows: 1", "   :class: options", ""]
        for cells in (("option", "values", "default", "meaning"), *rows):
            code = cells[0] != "option"
            shown = [f"``{cell}``" if code and column in (0, 2) else cell for column, cell in enumerate(cells)]
            lines += [f"   {'*' if column == 0 else ' '} - {cell}" for column, cell in enumerate(shown)]
        lines.append("")


def _values(option: Any) -> str:
    """The values an option takes, in words."""
    if get_origin(option.kind) is Literal:
        shown = ", ".join(f"``{value}``" for value in get_args(option.kind))
    elif get_origin(option.kind) is tuple:
        shown = "integers"
    else:
        shown = {int: "integer", float: "number", bool: "true or false", str: "text"}.get(option.kind, str(option.kind))
    return f"{shown}, or ``None``" if option.optional else shown


def check_self_contained(app: Any, problem: Exception | None) -> None:
    """Warn about pages that load something from the network."""
    for page in sorted(Path(app.outdir).rglob("*.html")):
        loaded = r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]*)"'
        for address in re.findall(loaded, page.read_text()):
            logger.warning("%s loads %s", page.name, address)


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx's events."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"  # napoleon's word for them is Variables
    app.connect("build-finished", check_self_contained)
    app.connect("source-read", keep_files)
    app.connect("autodoc-process-docstring", escape_markup, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", add_options, priority=900)  # after napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
