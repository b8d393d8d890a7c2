"""MovieLens (Harper & Konstan 2015) as implicit feedback, from TFDS's ``movielens``, read without TensorFlow.

Every rating is a link between a user (row) and a movie (column). Stars are ignored. Ids are renumbered in order,
without gaps. A random tenth of the users, drawn from the seed, are evaluation rows, which are absent from training
(strong generalization). A random fifth of the links of these users are held out. Their other links are history.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads import memory
from workloads.base import BadInput
from workloads.datasets import array_records
from workloads.factorization.links import BYTES_PER_LINK, Links, Pairs
from workloads.factorization.ratings import Ratings, RatingsSource, random_bits, short, split_rows

VERSION = "0.1.1"  # TFDS's version of the data
READER = 1  # version of this module; part of the data's identity
SPLITS = ("train",)
EVALUATED_SHARE = 0.1  # share of the users that are evaluated
FEWEST = 5  # links of an evaluation user, one of which is held out


class Size(NamedTuple):
    """The size of one of the data sets.

    Attributes:
      ratings: number of ratings.
      download_bytes: size of the download.
      stored_bytes: approximate size of the array_record files.
    """

    ratings: int
    download_bytes: int
    stored_bytes: int


SIZES = {
    "100k": Size(100_000, 4_924_029, 35_000_000),
    "latest-small": Size(100_836, 978_202, 17_000_000),
    "1m": Size(1_000_209, 5_917_549, 330_000_000),
    "20m": Size(20_000_263, 198_702_078, 4_400_000_000),
    "25m": Size(25_000_095, 261_978_986, 5_500_000_000),
}


def source(variant: str, seed: int = 0) -> RatingsSource:
    """Returns the data set for a key of SIZES, split by a seed. Raises BadInput for any other key."""
    if variant not in SIZES:
        raise BadInput(f"unknown variant {variant!r} of movielens; choices: {', '.join(SIZES)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadInput(f"seed of movielens must be an integer of at least 0, not {seed!r}")
    return RatingsSource(
        f"movielens-{variant}",
        functools.partial(version, variant, seed),
        functools.partial(check, variant),
        functools.partial(build, variant, seed),
    )


def folder(size: str, parent: Path | None = None) -> Path:
    """Returns the folder of the ratings of this size."""
    return array_records.folder(f"movielens/{size}-ratings", VERSION, parent)


def check_files(size: str, parent: Path | None = None) -> None:
    """Raises BadInput unless the ratings exist."""
    array_records.check(f"movielens/{size}", folder(size, parent), SPLITS)


def version(size: str, seed: int) -> str:
    """Returns the hash of the files and the seed."""
    check_files(size)
    return short(READER, seed, array_records.digest(f"movielens/{size}", folder(size), SPLITS))


def check(size: str) -> None:
    """Raises BadInput if the files do not exist or memory is insufficient."""
    check_files(size)
    ratings = SIZES[size].ratings
    memory.require(ratings * (BYTES_PER_LINK + 8), f"reading movielens/{size}", "Choose a smaller one")


def build(size: str, seed: int) -> Ratings:
    """Reads the ratings and splits them."""
    links, merged = _links(size)
    users = np.argsort(random_bits(seed, links.row_count), kind="stable")
    enough = users[links.lengths[users] >= FEWEST]
    evaluated = np.sort(enough[: max(1, round(EVALUATED_SHARE * links.row_count))])
    trained = np.setdiff1d(np.arange(links.row_count), evaluated)
    if not len(evaluated) or not len(trained):
        remedy = array_records.remedy(f"movielens/{size}", folder(size))
        raise BadInput(f"{folder(size)} holds too few ratings to split. {remedy}")
    history, heldout = split_rows(links.of_rows(evaluated), seed + 1)
    return Ratings(links.of_rows(trained), history, heldout, merged)


def _links(size: str) -> tuple[Links, int]:
    """Returns all links as a matrix of users × movies, and the number of duplicates."""
    place = folder(size)
    ratings = Pairs()
    count = 0
    for batch in array_records.batches(f"movielens/{size}", place, "train"):
        ids = [[int(record[name].bytes_list.value[0]) for name in ("user_id", "movie_id")] for record in batch]
        users, movies = np.array(ids, np.int64).T
        ratings.add(users, movies, str(place))
        count += len(batch)
    if count != SIZES[size].ratings:
        remedy = array_records.remedy(f"movielens/{size}", place)
        raise BadInput(f"{place} holds {count:,} ratings, not {SIZES[size].ratings:,}. {remedy}")
    links, merged = ratings.links(ratings.shape)
    links = links.of_rows(np.flatnonzero(links.lengths))
    seen = np.bincount(links.columns, minlength=links.column_count) > 0
    number = (np.cumsum(seen) - 1).astype(np.int32)
    return Links(links.starts, number[links.columns], int(seen.sum())), merged
