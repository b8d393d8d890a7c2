"""Published points: figures of papers as a table, to be drawn beside our own measurements, with what to cite."""

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent

_POINTS = {
    "source": "string",
    "figure": "string",
    "panel": "string",
    "dataset": "string",
    "model": "string",
    "optimizer": "string",
    "batch_size": "Int64",
    "cores": "Int64",
    "metric": "string",
    "target_value": "Float64",
    "steps": "Float64",
    "seconds_per_epoch": "Float64",
    "bound": "string",
    "relative_error": "Float64",
    "note": "string",
}
_SOURCES = {"source": "string", "citation": "string", "url": "string", "terms": "string"}
_WEBGRAPH = {
    "source": "string",
    "variant": "string",
    "min_links": "Int64",
    "nodes_millions": "Float64",
    "edges_billions": "Float64",
    "size_gib": "Float64",
    "train_rows": "Int64",
    "test_rows": "Int64",
    "train_t_rows": "Int64",
}


def points(source: str | None = None) -> pd.DataFrame:
    """Points of figures, and single figures, that papers published.

    Args:
      source: shallue2018 or alx2022; None takes all.

    Returns:
      One row a point, with the columns that `papers/README.md` explains, then citation, url and terms of its source.
      What does not apply is missing: steps of a time, or cores of a batch size.
    """
    return cited("points.csv", _POINTS, source)


def webgraph() -> pd.DataFrame:
    """The six variants of ALX's WebGraph data with their sizes, then citation, url and terms."""
    return cited("webgraph.csv", _WEBGRAPH, None)


def cited(name: str, columns: dict[str, str], source: str | None) -> pd.DataFrame:
    """A table of this folder, and citation, url and terms of the source of each row; None takes all sources."""
    table = _read(name, columns).merge(_read("sources.csv", _SOURCES), on="source", how="left", validate="many_to_one")
    return table if source is None else table[table["source"] == source].reset_index(drop=True)


def _read(name: str, columns: dict[str, str]) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name, dtype=columns, usecols=list(columns))
