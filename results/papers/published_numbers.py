"""Tables of published numbers and their citations: points from figures, and training steps on device meshes."""

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent

WITHIN = 0.006  # relative tolerance of utilization, because operations per second are rounded to whole TFLOP/s
SECONDS_WITHIN = 0.01  # relative tolerance of step seconds, which are rounded to hundredths
# Layers and width of the models in KempnerForge's report. Its utilization counts 6 P + 12 L D S operations per token,
# with P all parameters, as in its metrics/mfu.py.
_KEMPNERFORGE = {"7B": (32, 4096), "13B": (40, 5120), "70B": (80, 8192)}


def points(source: str | None = None) -> pd.DataFrame:
    """Returns published points from figures, and single numbers from papers.

    Args:
      source: shallue2018 or alx2022. None returns all.

    Returns:
      One row per point: the columns explained in `papers/README.md`, then citation, url and terms of the source.
      Columns that do not apply are missing, such as steps for a time, or cores for a batch size.
    """
    return _cited("points.csv", source)


def webgraph() -> pd.DataFrame:
    """Returns the six variants of ALX's WebGraph data with their sizes, then citation, url and terms."""
    return _cited("webgraph.csv", None)


def step_times() -> pd.DataFrame:
    """Returns published training steps on meshes of TPUs and GPUs, with the citation, URL and terms of their source.

    Values that a source does not state are missing. The columns are explained in `papers/README.md`.
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
    """Returns a table of this folder with the citation, URL and terms of the source of each row."""
    table = _read(name).merge(_read("sources.csv"), on="source", how="left", validate="many_to_one")
    return table if source is None else table[table["source"] == source].reset_index(drop=True)


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name, dtype_backend="numpy_nullable")


def layouts() -> pd.DataFrame:
    """Returns all published rows, then citation, url and terms of the source, and ``doubt`` on inconsistent rows.

    Redundant values in a row are compared: operations per second with utilization, and tokens per second with step
    seconds and with utilization. A row that contradicts itself is kept, and ``doubt`` describes the contradiction.

    Values that a source does not state are missing. ``mesh`` has the axes data, fsdp and tensor; utilization is a
    fraction of ``peak_tflops``.
    """
    table = _cited("layouts.csv", None)
    rates = ["peak_tflops", "tokens_per_second", "tflops_per_chip"]
    table[rates] = table[rates].astype("Float64")
    table["doubt"] = pd.array([_doubt(row) for _, row in table.iterrows()], dtype="string")
    return table


def _doubt(row: pd.Series) -> str | None:
    """Describes redundant values in a row that contradict each other, or returns None if all agree."""
    if pd.notna(row["tflops_per_chip"]):
        share = row["tflops_per_chip"] / row["peak_tflops"]
        if abs(share - row["utilization"]) > WITHIN:
            return (
                f"{row['tflops_per_chip']:g} TFLOP/s of {row['peak_tflops']:g} are {share:.2%}, "
                f"and it states {row['utilization']:.2%}"
            )
    if pd.isna(row["tokens_per_second"]):
        return None
    (layers, wide), rate = _KEMPNERFORGE[row["model"]], row["tokens_per_second"]
    flops = 6e9 * row["parameters_billions"] + 12 * layers * wide * row["length"]
    share = rate * flops / (row["peak_tflops"] * 1e12 * row["chips"])
    if abs(share - row["utilization"]) > WITHIN:
        return f"{rate:,.0f} tokens a second are {share:.1%} of the peak, and it states {row['utilization']:.1%}"
    sizes = dict(pair.split(":") for pair in row["mesh"].split(";"))
    tokens = row["micro_batch"] * row["accumulation"] * row["length"] * int(sizes.get("fsdp", 1))
    if abs(tokens / rate / row["step_seconds"] - 1) > SECONDS_WITHIN:
        return f"{tokens:,} tokens take {tokens / rate:.2f} s, and it states {row['step_seconds']:.2f} s"
    return None
