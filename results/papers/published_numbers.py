"""Tables of published numbers with citations: points from figures, training steps on device meshes, and GPT-3 runs."""

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent

WITHIN = 0.006  # relative tolerance of utilization, because operations per second are rounded to whole TFLOP/s
SECONDS_WITHIN = 0.01  # relative tolerance of step seconds, which are rounded to hundredths
BLOCKS_WITHIN = 0.03  # relative tolerance of a run's minutes from its median block
# Layers and width of the models in KempnerForge's report. Its utilization counts 6 P + 12 L D S operations per token,
# with P all parameters, as in its metrics/mfu.py.
_KEMPNERFORGE = {"7B": (32, 4096), "13B": (40, 5120), "70B": (80, 8192)}


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
    """Returns all published rows with the citation, url and terms of their source, and ``doubt`` for inconsistent rows.

    Redundant values in a row are compared: operations per second with utilization, and tokens per second with both step
    seconds and utilization. A row that contradicts itself is kept, and ``doubt`` describes the contradiction.

    Values that a source does not report are missing. ``mesh`` has the axes data, fsdp and tensor. Utilization is a
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


def gpt3_runs() -> pd.DataFrame:
    """Returns the GPT-3 175B runs on TPUs in MLPerf Training, with citation, url, terms and two derived columns.

    Runs start from a checkpoint, and their time is measured from the first block. Each block ends with one evaluation.
    ``block_minutes`` is the first block plus, for each later evaluation, the median block. ``slow`` names the slow
    blocks of a run whose published minutes differ from ``block_minutes`` by more than 3 %. It is missing for all other
    runs.
    """
    table = _cited("gpt3_runs.csv", None)
    block = table["steps_between_evaluations"] * table["seconds_per_step"]
    table["block_minutes"] = (table["first_block_seconds"] + (table["evaluations"] - 1) * block) / 60
    slow = [_slow(row) for _, row in table.assign(block=block).iterrows()]
    table["slow"] = pd.array(slow, dtype="string")
    return table


def _slow(row: pd.Series) -> str | None:
    """Describes the slow blocks of a run whose published minutes differ from ``block_minutes``."""
    if abs(row["block_minutes"] / row["minutes"] - 1) <= BLOCKS_WITHIN:
        return None
    words = str(row["slow_blocks"]).split(";") if pd.notna(row["slow_blocks"]) else []
    blocks = dict(pair.split(":") for pair in words)
    lost = sum(float(seconds) - row["block"] for seconds in blocks.values()) / 60
    if abs((row["block_minutes"] + lost) / row["minutes"] - 1) > BLOCKS_WITHIN:
        return "not explained by slow blocks"
    took = ", ".join(f"{float(seconds):.1f}" for seconds in blocks.values())
    return f"blocks {', '.join(blocks)} took {took} s, and the median {row['block']:.1f} s"
