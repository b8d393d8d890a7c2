"""Licences: the terms on which studies may be redistributed, by source."""

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from results.bad_input import printable
from results.plans.kinds import KINDS, kind_of
from results.plans.plan_columns import OWN

OWN_LICENCE = "CC-BY-4.0"
# Sources that may be converted locally and never be redistributed, whatever a plan says of them.
WITHHELD = ("shallue2018",)

_URLS = {
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "Apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
}
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,39}")


class Terms(NamedTuple):
    """The source of studies, with its terms.

    Attributes:
      source: who measured: this software, or a source of published studies.
      licence: SPDX identifier; None if there is none, so that the studies cannot be passed on.
      citation: of a published source.
    """

    source: str
    licence: str | None
    citation: str | None

    @property
    def author(self) -> str:
        """Whom to name, as the citation begins; the source where there is none."""
        return re.split(r",| \d{4}", self.citation or self.source)[0]

    @property
    def url(self) -> str:
        """Where the licence's text is."""
        return _URLS.get(self.licence or "", f"https://spdx.org/licenses/{self.licence}.html")


def as_markdown(text: str | None) -> str:
    """A text of somebody else's on one line of Markdown, where nothing in it is markup."""
    # Within a word _ is no markup, and names of repositories have it.
    return re.sub(r"([\\`*\[\]<>&|]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", printable(text))


def terms(plan: Mapping[str, Any]) -> Terms:
    """The terms of a study, from its plan: published studies carry their licence and citation in their details."""
    if not KINDS[kind_of(plan)].recorded:
        return Terms(OWN, OWN_LICENCE, None)
    source, details = str(plan["source"]), plan["details"]
    licence = str(details.get("licence", ""))
    known = source not in WITHHELD and _SPDX.fullmatch(licence)
    citation = details.get("citation")
    return Terms(source, licence if known else None, str(citation) if citation else None)


def apache_text() -> bytes:
    """The text of Apache-2.0, which has to go with what is under it; this software is, too."""
    packaged = importlib.metadata.distribution("scaling-limits").read_text("licenses/LICENSE")
    return packaged.encode() if packaged else (Path(__file__).parents[2] / "LICENSE").read_bytes()
