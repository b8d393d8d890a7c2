"""What --help of every command says, beside the meanings of columns, which stand with the columns."""

TOP = """\
Numbers, regimes and figures from a store of results.

  python -m analysis steps --store results/local
  python -m analysis fit --store results/local
  python -m analysis epochs --store results/local
  python -m analysis figures --store results/local --out figures

steps and fit are about studies of batch sizes, epochs about factorizations on several cores, figures about all.
DIR of --store is the folder of a store or of a release, or a URL that fsspec knows, such as gs://bucket/folder.
"""
STEPS = """\
Steps to target: how many steps the best trial of every study needed to reach its target.

  python -m analysis steps --store results/local
  python -m analysis steps --store results/local --csv > steps.csv
  python -m analysis steps --store results/local --metric test_error --value 0.05
  python -m analysis steps --store results/published --metric validation_error --value 0.01 --rule released

--rule minimum    a trial reached a target once it is at or below it; all trials count, however they ended
--rule released   the analysis published with Shallue et al. (2018): strictly below, and of each study only the first
                  trials that are COMPLETE count, by number: --first 100 of them, or all if there are fewer

columns of --csv, one row per study and target:
"""
FIT = """\
The critical batch size of every curve: up to where a larger batch keeps saving steps, with a 90 % interval.

  python -m analysis fit --store results/local
  python -m analysis fit --points steps.csv --csv

A curve is the studies that differ in batch size alone. The model of steps S at batch size B is
ln S = ln s_min + ln(1 + (critical_batch_size / B)^sharpness) / sharpness;
the interval is a profile over both parameters, so it does not rely on the knee being a hyperbola.

--points takes a CSV file with batch_size and either steps, or steps_low and steps_high; rows that agree in all
other columns make a curve. What `steps --csv` writes is such a file.

columns of --csv, after those that name the curve:
"""
FIT_LIMITS = """
Not in the interval: a slope other than -1 at small batch sizes, and a search that gets harder with batch size,
which pulls the critical batch size down by up to half an octave. Look at the figures beside the numbers.
"""
EPOCHS = """\
Factorizations: seconds per epoch and recall on every number of cores, one row per study.

  python -m analysis epochs --store results/local
  python -m analysis epochs --store results/local --csv > epochs.csv
  python -m analysis epochs --store results/local --fit

columns of --csv, one row per study:
"""
EPOCHS_FIT = """
--fit asks of every curve how far more cores pay off. A curve is the studies that differ in the number of cores
alone, on devices of one kind, each of them a core of its own: emulated ones are left out. The law of seconds T on
c cores is T = serial + parallel / c + communication (c - 1), fitted by relative errors to three counts or more; what
moves (c - 1) / c of a table into every core cannot be told from the other two times, and is counted in serial.

columns of --fit --csv, one row per curve:
"""
FIGURES = """\
Draws figures of a store as PNG and SVG.

  python -m analysis figures --list
  python -m analysis figures --store results/local --out figures
  python -m analysis figures --store results/local --out figures --name optimizers
"""


def meanings(columns: dict[str, str]) -> str:
    """One line for every column: its name, and what it means."""
    width = max(map(len, columns)) + 2
    return "\n".join(f"  {name:{width}}{meaning}" for name, meaning in columns.items()) + "\n"
