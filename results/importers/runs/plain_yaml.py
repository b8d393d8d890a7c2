"""Plain YAML: parses untrusted YAML or JSON text to plain data."""

import re
from typing import Any

import yaml

from results.bad_input import first_line
from results.durable import check_depth
from results.importers.untrusted import MOST_DEPTH


class PlainLoader(yaml.SafeLoader):
    """A YAML loader for untrusted text. It loads only plain data without aliases, which could expand without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.constructor.ConstructorError(None, None, "it has an alias", self.peek_event().start_mark)
        return super().compose_node(parent, index)


# YAML 1.1 reads 1e-3 as text. Numbers in a map or a config are often written that way.
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"),
    list("-+.0123456789"),
)


def load(data: bytes) -> Any:
    """Parses YAML or JSON text. Raises ValueError with a one-line message if it is neither or is nested too deeply."""
    try:
        content = yaml.load(data.decode("utf-8-sig"), PlainLoader)
        check_depth(content, MOST_DEPTH)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or first_line(error))
        raise ValueError(f"line {mark.line + 1}: {problem}" if mark else problem) from None
    except (RecursionError, TypeError) as error:
        raise ValueError(first_line(error)) from None
    return content
