"""Checks, at first use, that a server creates each object only once. Some servers accept the condition but ignore it.

One random key is created twice, and another by 16 concurrent requests. For each key, exactly one request must succeed.
Both keys must be listed immediately.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor

from results.bad_input import BadInput
from results.file_systems.entry import TEMPORARY
from results.file_systems.path import BucketPath

WRITERS = 16


def check(store: BucketPath) -> None:
    """Raises BadInput, with the reason, if a bucket cannot hold a store. Does not leave any objects behind."""
    bucket = store.bucket
    prefix = f"{TEMPORARY}probe-{uuid.uuid4().hex}"
    twice, together = store / f"{prefix}-twice", store / f"{prefix}-together"
    try:
        try:
            answers = [bucket.create(twice.key, data) for data in (b"first", b"second")]
            with ThreadPoolExecutor(WRITERS) as pool:
                writers = [uuid.uuid4().bytes for _ in range(WRITERS)]
                wins = list(pool.map(lambda data: bucket.create(together.key, data), writers))
            listed = {path.name for path in store.iterdir() if path.name.startswith(prefix)}
            kept = twice.read_bytes()
        finally:
            bucket.delete(twice.key)
            bucket.delete(together.key)
    except OSError as error:
        raise BadInput(f"store={store} cannot be written ({_reason(error)}). Name another with store=URL.") from None
    if answers != [True, False] or kept != b"first" or sum(wins) != 1:
        raise BadInput(
            f"store={store}: the server ignores the condition that an object must not exist, so two sweeps could "
            "overwrite each other. Use another server."
        )
    if listed != {twice.name, together.name}:
        raise BadInput(f"store={store}: the server does not list new objects at once. Use another server.")


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such bucket"
    return error.strerror or "the request failed"
