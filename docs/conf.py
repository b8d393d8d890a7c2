"""Sphinx's configuration: `make docs` builds the pages of this folder, and any warning is an error."""

import importlib
import re
import sys
import typing
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

importlib.import_module("analysis.plotting.picture")  # and the modules it imports
typing.TYPE_CHECKING = True  # the registry of figures imports the types in its signatures for type checkers alone
importlib.import_module("analysis.figures.registry")
typing.TYPE_CHECKING = False

project = "scaling-limits"
author = "The scaling-limits authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["*.py", ".*", "examples/*"]  # of this folder
default_role = "code"

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static"]
html_css_files = ["pages.css"]

myst_heading_anchors = 4  # links to headings read as on a code host

# Notebooks are executed by every build; `-D nb_execution_mode=off` leaves that out.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force"
nb_execution_timeout = 180
nb_execution_show_tb = True  # of a cell that fails, which is a warning
nb_output_stderr = "warn"
nb_merge_streams = True
nb_ipywidgets_js: dict[str, Any] = {}  # would be fetched from elsewhere

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_param = False  # several may be documented at once: "low, high: ..."
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False

# Names of other packages have no pages here. Names of our own have, or a warning says so.
EXTERNAL = "argparse|collections|concurrent|contextlib|contextvars|ctypes|flax|fractions|hydra|io|jax|jaxlib|json"
EXTERNAL += "|matplotlib|multiprocessing|numpy|omegaconf|optax|pandas|pathlib|pyarrow|re|signal|subprocess"
EXTERNAL += "|types|typing|zipfile"
BUILT_IN = "bool|bytes|dict|float|frozenset|int|list|object|set|slice|str|tuple|type|None"
BUILT_IN += "|Exception|FileNotFoundError|RuntimeError|ValueError"
TYPE_VARIABLE = r"(.*\.)?[A-Z]"
ALIASES = "Pictures"  # of analysis.plotting.picture: an iterator of its Picture and Skipped
# Types that modules import for type checkers alone stay as they are written, and so do all names beside them.
ALIASES += r"|Array|Compiled|Fields|Folder|Json|Location|Lowered|OnCount|Path|Report|Row|StringMap|Strings|Study"
ALIASES += r"|np\.ndarray|pa\.(Buffer|Table)|pd\.DataFrame"
nitpick_ignore_regex = [("py:class", f"{TYPE_VARIABLE}|{ALIASES}"), ("py:.*", rf"({EXTERNAL})(\..*)?|{BUILT_IN}")]


def setup(app: Sphinx) -> None:
    """Connects the generated pages and the cleaning of docstrings."""
    pages = importlib.import_module("pages")
    app.connect("builder-inited", lambda app: pages.write_all(HERE))
    app.connect("source-read", _read_source)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _clean_signature)
    app.connect("autodoc-process-docstring", _keep_verbatim, priority=400)  # napoleon's is 500


def _read_source(app: Sphinx, name: str, source: list[str]) -> None:
    """Replaces links to files outside this folder, and the page that only links to ARCHITECTURE.md."""
    if (HERE / f"{name}.md").exists():
        source[0] = importlib.import_module("pages").source(name, source[0])


def _skip(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Skips fields of named tuples, which the docstrings of their classes document."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def _keep_verbatim(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Shows indented text under a blank line verbatim, and keeps text from being read as a type or an address."""
    lines[:] = [re.sub(r"(?<=[a-z])@(?=\d)", r"\\@", line) for line in lines]  # Recall@20 is no address
    for i in range(len(lines) - 1, 1, -1):
        if lines[i].startswith("    ") and not lines[i - 1] and lines[i - 2] and not lines[i - 2].startswith(" "):
            lines[i - 1 : i] = ["", "::", ""]
    for i in range(len(lines) - 1):
        if lines[i] == "Returns:":  # or text before a colon would be taken for a type
            lines[i + 1] = f"  {lines[i + 1].strip()}"
            lines[i] = ":returns:"
    if what == "property":
        lines[:0] = ["..", ""]


def _clean_signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Shows default factories and lambdas in a signature as `...`, because their representations are not Python."""
    return signature and re.sub(r"<(factory|function [\w.<>]+)>", "...", signature), returned
