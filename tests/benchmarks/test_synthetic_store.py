"""The made-up store that speed is measured on."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STORE = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from pathlib import Path
import numpy as np
import synthetic_store
from results import store
from results.reading import overview, scan
from results.rules import answers
from results.plans.study import Target

made = synthetic_store.studies()
assert len(made) == 454
assert abs(sum(m.study.trials for m in made) - synthetic_store.TRIALS) < 454
assert abs(sum(len(synthetic_store.tables(m, np.random.default_rng(0))["measurements"]) for m in made[:4])
           / sum(m.study.trials for m in made[:4]) - synthetic_store.ROWS / synthetic_store.TRIALS) < 80

folder = Path(sys.argv[1])
for m in synthetic_store.studies(0.05)[:2]:
    assert synthetic_store._write((folder, m, 0)) > 1000
held, target = overview.survey(folder), Target("validation_error", 0.1)
found = held.answers(target, held.descriptions)
assert len(found) == len(held.envelopes) == 2
assert found == answers.best(scan.intervals(store.catalogue(folder), target))

plausible = [m for m in synthetic_store.studies(0.05, plausibly=True) if m.path.startswith("open_images_v4")]
for m in plausible[:2]:
    assert synthetic_store._write((folder / "plausible", m, 0)) > 1000
held = overview.survey(folder / "plausible")
found = held.answers(Target("validation_average_precision_error", 0.69), held.descriptions)
assert len(found) == 2
"""


def test_a_synthetic_store_is_of_the_published_size_and_is_answered(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STORE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
