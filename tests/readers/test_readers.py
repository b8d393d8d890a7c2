"""The one-liners of docs/sql.md, each in an environment that has its reader alone, without this package.

`make test-readers` makes the environments, build/readers/NAME, and runs these tests.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sql.md"
ENVIRONMENTS = Path(os.environ.get("READERS", ROOT / "build" / "readers"))
RELEASES = ("published", "mlperf")
TABLES = ("studies", "trials", "measurements", "points")
# How a table of each reader tells its number of rows and its columns.
TOLD = {
    "datasets": "(len(table), table.column_names)",
    "mlcroissant": "(len(table), [name.rpartition('/')[2] for name in table[0]])",
    "duckdb": "(len(table), table.columns)",
    "polars": "(len(table), table.columns)",
    "pandas": "(len(table), list(table.columns))",
    "fastparquet": "(len(table), list(table.columns))",  # which knows fewer encodings than the others
}
PROGRAM = """
import importlib.util, json
import {reader}
assert importlib.util.find_spec("results") is None, "this package is there"
table = {line}
print(json.dumps({told}))
"""

pytestmark = [pytest.mark.readers, pytest.mark.timeout(5400)]  # of which one makes 808,484 records, one by one


def lines() -> dict[str, str]:
    """The one-liners of docs/sql.md, by reader."""
    page = PAGE.read_text()
    found = re.findall(r"^    ((\w+)\.\S.*?results/published/?.*?)(?:  +#.*)?$", page, re.M)
    found += re.findall(r"^    (list\((mlcroissant)\..*?)(?:  +#.*)?$", page, re.M)
    return {reader: line for line, reader in found if reader in TOLD}


@pytest.mark.parametrize("reader", TOLD)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("table", TABLES)
def test_a_line_reads_all_rows_and_columns(reader: str, release: str, table: str, tmp_path: Path) -> None:
    line = lines()[reader].replace("results/published", f"results/{release}")
    line = line.replace('"studies"', f'"{table}"') if reader == "mlcroissant" else line.replace("measurements", table)
    program = PROGRAM.format(reader=reader, line=line, told=TOLD[reader])
    python = ENVIRONMENTS / reader / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    folder = tmp_path / "elsewhere" / "results"
    folder.mkdir(parents=True)
    (folder / release).symlink_to(ROOT / "results" / release, target_is_directory=True)
    done = subprocess.run(
        [python, "-P", "-c", program], cwd=folder.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows, columns = json.loads(done.stdout.splitlines()[-1])
    file = pq.ParquetFile(ROOT / "results" / release / f"{table}.parquet")
    assert rows == file.metadata.num_rows
    assert set(columns) == set(file.schema_arrow.names)


def test_r_is_told_too() -> None:
    assert '\n    arrow::read_parquet("results/published/measurements.parquet")' in PAGE.read_text()
