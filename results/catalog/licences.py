"""Licences: the terms for redistributing studies from each source."""

import importlib.metadata
import re
from pathlib import Path
from typing import NamedTuple

from results.aliases import Fields
from results.bad_input import printable
from results.plans.kinds import KINDS, kind_of
from results.plans.plan_columns import OWN

OWN_LICENCE = "CC-BY-4.0"
# Sources that may be converted locally but never redistributed, whatever their plans state.
WITHHELD = ("shallue2018",)

_URLS = {
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "Apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
}
# A summary of each licence's terms.
_USAGE = {
    "CC-BY-4.0": "any use, also commercial; name the source and state changes",
    "Apache-2.0": "any use, also commercial; include the licence and its notices, and state changes",
}
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,39}")


class Terms(NamedTuple):
    """A source of studies and its terms.

    Attributes:
      source: this software, or a source of published studies.
      licence: SPDX identifier, or None if there is no licence. Studies without a licence may not be redistributed.
      citation: citation of a published source.
    """

    source: str
    licence: str | None
    citation: str | None

    @property
    def author(self) -> str:
        """Returns the author to credit: the start of the citation, or the source if there is no citation."""
        return re.split(r",| \d{4}", self.citation or self.source)[0]

    @property
    def url(self) -> str:
        """Returns the URL of the licence text."""
        return _URLS.get(self.licence or "", f"https://spdx.org/licenses/{self.licence}.html")

    @property
    def usage(self) -> str:
        """Returns a summary of the terms of use."""
        return _USAGE.get(self.licence or "", "see the licence")


def as_markdown(text: str | None) -> str:
    """Escapes external text for use within one line of Markdown."""
    # An underscore inside a word is not markup, and repository names contain it.
    return re.sub(r"([\\`*\[\]<>&|]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", printable(text))


def terms(plan: Fields) -> Terms:
    """Returns the terms of a study given its plan. Published studies have their licence and citation in ``details``."""
    if not KINDS[kind_of(plan)].recorded:
        return Terms(OWN, OWN_LICENCE, None)
    source, details = str(plan["source"]), plan["details"]
    licence = str(details.get("licence", ""))
    is_known = source not in WITHHELD and _SPDX.fullmatch(licence)
    citation = details.get("citation")
    return Terms(source, licence if is_known else None, str(citation) if citation else None)


def apache_text() -> bytes:
    """Returns the text of Apache-2.0, which must accompany data under this licence and applies to this software too."""
    packaged = importlib.metadata.distribution("scaling-limits").read_text("licenses/LICENSE")
    return packaged.encode() if packaged else (Path(__file__).parents[2] / "LICENSE").read_bytes()
