"""Is the store fast? Answers from 70 million measurements, the cost of a commit, verifying, importing.

    python benchmarks/stores.py [--store FOLDER] [--share SHARE] [--json FILE] [--smoke]

The store has the 454 published studies with 168,000 made-up trials and 70 million measurements (1.8 GB). It is written
to FOLDER unless it is there already; without --store it is a temporary one. --share 0.01 takes a hundredth of the
measurements, and has no targets for figures that depend on their number. Files are in the page cache, and the start of
Python is not timed. Runs of 1 are processes of their own, in turn; ratios are medians of pairs.

1. First step at a target for every workload and batch size: by the scan, commit records included; by `analysis steps`
   from envelopes, by both rules, the quickest of twenty; by reading everything into pandas. All must agree.
2. Creating a file, and claiming, writing and committing a study of a few rows, against one fsync.
3. `python -m results verify` on one core, by processor time.
4. The figures of benchmarks/published_imports.py.
"""

import published_imports
import store_speed
import synthetic_store
from report import open_report

if __name__ == "__main__":
    with open_report(__doc__, synthetic_store.ARGUMENTS) as report:
        store_speed.main(report)
        published_imports.main(report)
