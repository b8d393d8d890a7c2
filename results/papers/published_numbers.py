"""Tables of published numbers with citations: points from figures, training steps on device meshes, and GPT-3 runs."""

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent


def points(source: str | None = None) -> pd.DataFrame:
    """Returns published points read from figures, and single numbers from papers.

    Args:
      source: shallue2018 or alx2022. None returns both.

    Returns:
      One row per point: the columns explained in `papers/README.md`, then citation, url and terms of the source. Values
        that do not apply are missing, such as the steps of a time or the cores of a batch size.
    """
    return _cited("points.csv", source)


def webgraph() -> pd.DataFrame:
    """Returns the six variants of ALX's WebGraph data with their sizes, then citation, url and terms."""
    return _cited("webgraph.csv", None)


def step_times() -> pd.DataFrame:
    """Returns published training steps on meshes of TPUs and GPUs, with the citation, URL and terms of their source.

    Values that a source does not report are missing. The columns are explained in `papers/README.md`.
    """
    table = _cited("step_times.csv", None)
    rates = ["tflops_per_chip", "step_seconds", "step_seconds_derived", "peak_tflops"]
    table[rates] = table[rates].astype("Float64")
    return table


def micro_measurements() -> pd.DataFrame:
    """Returns published times and rates of single matmuls, copies and collectives, with citation, URL and terms."""
    return _cited("micro_measurements.csv", None)


def decoders() -> pd.DataFrame:
    """Returns the shapes of published decoders: model, then the columns of ``results.costs.decoder_counts.Decoder``."""
    return _read("decoders.csv")


def _cited(name: str, source: str | None) -> pd.DataFrame:
    """Returns a table in this folder with the citation, URL and terms of each row's source."""
    table = _read(name).merge(_read("sources.csv"), on="source", how="left", validate="many_to_one")
    return table if source is None else table[table["source"] == source].reset_index(drop=True)


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name, dtype_backend="numpy_nullable")


def layouts() -> pd.DataFrame:
    """Returns published training steps on meshes, with the citation, URL and terms of their source.

    ``doubt`` describes a contradiction between redundant values of a row. Values that a source does not report are
    missing. ``mesh`` has the axes data, fsdp and tensor. Utilization is a fraction of ``peak_tflops``.
    """
    table = _cited("layouts.csv", None)
    rates = ["peak_tflops", "tokens_per_second", "tflops_per_chip"]
    table[rates] = table[rates].astype("Float64")
    return table


def gpt3_runs() -> pd.DataFrame:
    """Returns the GPT-3 175B runs on TPUs in MLPerf Training, with citation, URL and terms.

    Runs start from a checkpoint, and their time is measured from the first block. Each block ends with one evaluation.
    """
    return _cited("gpt3_runs.csv", None)
