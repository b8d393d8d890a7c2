"""Published numbers, as tables with what to cite: points of figures, and steps of training on meshes of devices."""

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent

WITHIN = 0.006  # of a utilization: operations a second are rounded to whole TFLOP/s
SECONDS_WITHIN = 0.01  # of the seconds of a step, which are rounded to hundredths
# Layers and width of the models of KempnerForge's report, whose utilization counts 6 P + 12 L D S operations a token
# with P all parameters, as its metrics/mfu.py says.
_KEMPNERFORGE = {"7B": (32, 4096), "13B": (40, 5120), "70B": (80, 8192)}


def points(source: str | None = None) -> pd.DataFrame:
    """Points of figures, and single figures, that papers published.

    Args:
      source: shallue2018 or alx2022; None takes all.

    Returns:
      One row a point, with the columns that `papers/README.md` explains, then citation, url and terms of its source.
      What does not apply is missing: steps of a time, or cores of a batch size.
    """
    return _cited("points.csv", source)


def webgraph() -> pd.DataFrame:
    """The six variants of ALX's WebGraph data with their sizes, then citation, url and terms."""
    return _cited("webgraph.csv", None)


def _cited(name: str, source: str | None) -> pd.DataFrame:
    """Returns a table of this folder with the citation, URL and terms of the source of each row."""
    table = _read(name).merge(_read("sources.csv"), on="source", how="left", validate="many_to_one")
    return table if source is None else table[table["source"] == source].reset_index(drop=True)


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name, dtype_backend="numpy_nullable")


def layouts() -> pd.DataFrame:
    """Every published row, then citation, url and terms of its source, and ``doubt``: what in it contradicts itself.

    What a row says twice is compared: operations a second against utilization, tokens a second against seconds of a
    step and against utilization. A row that contradicts itself is kept, and says so.

    What a source does not state is missing. ``mesh`` has the axes data, fsdp and tensor; utilization is a share of
    ``peak_tflops``.
    """
    table = _cited("layouts.csv", None)
    rates = ["peak_tflops", "tokens_per_second", "tflops_per_chip"]
    table[rates] = table[rates].astype("Float64")
    table["doubt"] = pd.array([_doubt(row) for _, row in table.iterrows()], dtype="string")
    return table


def _doubt(row: pd.Series) -> str | None:
    """What a row says in two ways that do not agree; None where all of it does."""
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
