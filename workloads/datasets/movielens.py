"""MovieLens (Harper & Konstan 2015) as implicit feedback, from TFDS's ``movielens``, read without TensorFlow.

A rating is a link between a user (row) and a movie (column), whatever its stars. Ids are numbered anew in their order,
without gaps. A tenth of the users, drawn by the seed, are evaluation rows, absent from training (strong
generalization); of each one's links a fifth, drawn too, are held out, and the others are history.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from results.bad_input import BadInput
from workloads import memory
from workloads.datasets import array_records
from workloads.factorization.links import BYTES_PER_LINK, Links, Pairs
from workloads.factorization.ratings import Ratings, RatingsSource, random_bits, short, split_rows

VERSION = "0.1.1"  # of TFDS
READER = 1  # counts the versions of what follows; part of the data's identity
SPLITS = ("train",)
EVALUATED_SHARE = 0.1  # of the users
FEWEST = 5  # links of an evaluation user, of which one is held out
BATCH = 1 << 16  # ratings handled at once


class Size(NamedTuple):
    """The size of one of the data sets.

    Attributes:
      ratings: exactly.
      download_bytes: what TFDS fetches.
      stored_bytes: of the array_record files, about.
    """

    ratings: int
    download_bytes: int
    stored_bytes: int


SIZES: dict[str, Size] = {
    "100k": Size(100_000, 4_924_029, 35_000_000),
    "latest-small": Size(100_836, 978_202, 17_000_000),
    "1m": Size(1_000_209, 5_917_549, 330_000_000),
    "20m": Size(20_000_263, 198_702_078, 4_400_000_000),
    "25m": Size(25_000_095, 261_978_986, 5_500_000_000),
}


def source(variant: str, seed: int = 0) -> RatingsSource:
    """The data set of a key of SIZES, split by a seed; raises BadInput for other keys."""
    if variant not in SIZES:
        raise BadInput(f"unknown variant {variant!r} of movielens; choices: {', '.join(SIZES)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadInput(f"seed of movielens must be a whole number of at least 0, not {seed!r}")
    calls = (
        functools.partial(version, variant, seed),
        functools.partial(check, variant),
        functools.partial(build, variant, seed),
    )
    return RatingsSource(f"movielens-{variant}", *calls)


def folder(size: str, within: Path | None = None) -> Path:
    """The folder of the files of a size's table of ratings."""
    return array_records.folder(f"movielens/{size}-ratings", VERSION, within)


def check_files(size: str, within: Path | None = None) -> None:
    """Raises BadInput unless the table is there."""
    array_records.check(f"movielens/{size}", folder(size, within), SPLITS)


def version(size: str, seed: int) -> str:
    """Hash of the files and of the seed."""
    check_files(size)
    digest = array_records.digest(f"movielens/{size}", folder(size), SPLITS)
    return short(READER, seed, digest)


def check(size: str) -> None:
    """Raises BadInput where the files are not there, or memory does not suffice."""
    check_files(size)
    ratings = SIZES[size].ratings
    memory.require(ratings * (BYTES_PER_LINK + 8), f"reading movielens/{size}", "choose a smaller one")


def build(size: str, seed: int) -> Ratings:
    """Reads a table and splits it."""
    links, merged = _links(size)
    users = np.argsort(random_bits(seed, links.row_count), kind="stable")
    enough = users[links.lengths[users] >= FEWEST]
    evaluated = np.sort(enough[: max(1, round(EVALUATED_SHARE * links.row_count))])
    others = np.setdiff1d(np.arange(links.row_count), evaluated)
    if not len(evaluated) or not len(others):
        raise BadInput(f"{folder(size)} holds too few ratings to be split; delete it and run the preparation again")
    history, heldout = split_rows(links.of_rows(evaluated), seed + 1)
    return Ratings(links.of_rows(others), history, heldout, merged)


def _links(size: str) -> tuple[Links, int]:
    """All links, users × movies."""
    place = folder(size)
    ratings, count = Pairs(), 0
    users: list[int] = []
    movies: list[int] = []
    for record in array_records.records(f"movielens/{size}", place, "train"):
        users.append(int(record["user_id"].bytes_list.value[0]))
        movies.append(int(record["movie_id"].bytes_list.value[0]))
        if len(users) == BATCH:
            count += _add(ratings, users, movies, place)
    count += _add(ratings, users, movies, place)
    if count != SIZES[size].ratings:
        raise BadInput(
            f"{place} holds {count:,} ratings, not {SIZES[size].ratings:,}; delete it and run "
            f"python -m workloads.prepare movielens/{size}"
        )
    links, merged = ratings.links((ratings.rows, ratings.columns))
    links = links.of_rows(np.flatnonzero(links.lengths))
    seen = np.bincount(links.columns, minlength=links.column_count) > 0
    number = (np.cumsum(seen) - 1).astype(np.int32)
    return Links(links.starts, number[links.columns], int(seen.sum())), merged


def _add(ratings: Pairs, users: list[int], movies: list[int], place: Path) -> int:
    count = len(users)
    ratings.add(np.array(users, np.int64), np.array(movies, np.int64), str(place))
    users.clear()
    movies.clear()
    return count
