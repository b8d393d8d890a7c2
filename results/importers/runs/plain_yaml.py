"""Plain YAML: parses untrusted YAML or JSON text to plain data."""

import json
import re
from typing import Any

import yaml

from results.bad_input import first_line
from results.durable import check_depth
from results.importers.untrusted import MOST_DEPTH

MOST_DIGITS = 18  # digits of an integer; longer ones take long to convert


class PlainLoader(yaml.SafeLoader):
    """A YAML loader for untrusted text. It loads only plain data without aliases, which could expand without bound.

    Numbers are those of YAML 1.2: there are no numbers to the base 60, and 1e-3 is a number.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.constructor.ConstructorError(None, None, "it has an alias", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def number(self, node: Any) -> int | float:
        """Returns an integer or a floating-point number."""
        text = self.construct_scalar(node).replace("_", "")
        is_integer = node.tag.endswith("int")
        if is_integer and len(text.lstrip("+-")) > MOST_DIGITS:
            raise yaml.constructor.ConstructorError(
                None, None, f"it has an integer of more than {MOST_DIGITS} digits", node.start_mark
            )
        return int(text) if is_integer else float(re.sub(r"\.(?=inf|nan)", "", text.lower()))


PlainLoader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("bool", r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    (
        "float",
        r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(?i:inf)|\.(?i:nan)",
        "-+.0123456789",
    ),
):
    PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})$"), [*_first, ""])
for _name in ("int", "float"):
    PlainLoader.add_constructor(f"tag:yaml.org,2002:{_name}", PlainLoader.number)


def load(data: bytes) -> Any:
    """Parses YAML or JSON text. Raises ValueError with a one-line message if it is neither or is nested too deeply."""
    text = data.decode("utf-8-sig")
    try:
        content = _json(text)
        if content is None:
            content = yaml.load(text, PlainLoader)
        check_depth(content, MOST_DEPTH)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or first_line(error))
        raise ValueError(f"line {mark.line + 1}: {problem}" if mark else problem) from None
    except (RecursionError, TypeError) as error:
        raise ValueError(first_line(error)) from None
    return content


def _json(text: str) -> Any:
    """Returns the content of a JSON text, or None. YAML contains JSON, except for tabs, but takes much longer."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
