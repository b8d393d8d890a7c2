"""Withdrawn versions of data sets, and notes about stores with studies that were trained on them."""

from collections import Counter

from results import store
from results.bad_input import number_of
from results.durable import Folder
from results.located import located

# The reason for withdrawal, by data set and version.
WITHDRAWN = {
    ("lm1b", "tfds:1.1.0 bpe:32768 of train[:1000000] in 128"): "held-out text doubled",
}


@located
def of_store(folder: Folder) -> list[str]:
    """Returns one line for each withdrawn version that was used by studies in a store or a release."""
    commits = store.released_commits(folder)
    plans = [commit.plan for commit in (store.committed(folder) if commits is None else commits)]
    counts = Counter((plan.get("dataset"), plan.get("dataset_version")) for plan in plans)
    return [
        f"{folder}: {number_of(count, 'study')} of {dataset} trained on data version {version!r} ({why}). "
        "Do not compare them with others."
        for (dataset, version), why in WITHDRAWN.items()
        if (count := counts[dataset, version])
    ]
