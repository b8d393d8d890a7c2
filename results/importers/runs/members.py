"""Members: the files of each run, which are read and joined."""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence

from tqdm import tqdm

from results.bad_input import BadInput
from results.durable import Folder
from results.grouping import grouped
from results.importers.runs import logs, places, series
from results.importers.runs.log import Log
from results.importers.runs.places import Place
from results.importers.runs.run_map import TENSORBOARD, TRAINER, Reference, RunMap
from results.importers.runs.series import Series
from results.importers.untrusted import ImportWarnings, Unusable, brief

OLDER, UNUSABLE = "older checkpoints", "unusable"  # reasons to skip files
_CHECKPOINT = re.compile(r"(?P<run>(?:.*/)?)checkpoint-(?P<step>\d{1,18})/[^/]*")


def logs_of_runs(root: Folder, run_map: RunMap, warnings: ImportWarnings) -> Iterator[Log]:
    """Yields the log of each run under ``root``. Files and runs that cannot be used become warnings.

    Args:
      root: the imported folder, or one file.
      run_map: the map.
      warnings: receives the reasons, and the numbers of files, of skipped files and of refused runs.
    """
    base = root.parent if root.is_file() else root
    groups = _files_of_runs(root, run_map, warnings)
    files = tqdm(groups, "runs", unit="file", disable=None)
    read_logs = (log for group in files for log in _read(group, run_map, base, warnings))
    yield from _across_files(read_logs) if run_map.run_columns() and len(groups) > 1 else read_logs


def _across_files(logs_of_files: Iterable[Log]) -> Iterator[Log]:
    """Joins runs with the same name in several files if their steps continue. Raises BadInput if this is ambiguous."""
    heaps: dict[str, list[tuple[int, str, list[Log]]]] = {}  # the parts of each run by their last step
    for log in sorted(logs_of_files, key=_extent):
        start, end = _extent(log)
        heap = heaps.setdefault(repr((log.name.removeprefix(log.place.path), log.columns)), [])
        part = heapq.heappop(heap)[2] if heap and heap[0][0] < start else []
        if part and heap and heap[0][0] < start:
            raise BadInput(
                f"{log.name} may continue {part[-1].name} or {heap[0][1]}. Give different runs different names."
            )
        part.append(log)
        heapq.heappush(heap, (end, log.name, part))
    parts = [part for heap in heaps.values() for _, _, part in heap]
    yield from map(_joined, sorted(parts, key=lambda part: part[0].name))


def _files_of_runs(root: Folder, run_map: RunMap, warnings: ImportWarnings) -> list[list[Place]]:
    """Returns the files of each run, or single files that contain several runs.

    Files belong to the same run if the map's key run refers to the path, and all parts of the path that the map uses
    are equal. Event files of TensorBoard in one folder belong to the same run by default, or
    all below the folder before the last ``**/`` of the pattern.
    """
    matching = places.find(root, run_map.files, warnings)
    warnings.files = len(matching) + warnings.skipped.total()
    if run_map.format == TRAINER:
        newest = {_checkpoint(place)[0]: place for place in sorted(matching, key=lambda place: _checkpoint(place)[1])}
        warnings.skipped[OLDER] = len(matching) - len(newest)
        matching = sorted(newest.values(), key=lambda place: place.path)
    if run_map.run and isinstance(run_map.run[0], Reference) and run_map.run[0].origin == "path":
        names = run_map.references("path")
        groups = grouped(matching, lambda place: repr([place.parts[name] for name in names]))
    elif run_map.format == TENSORBOARD:
        groups = grouped(matching, lambda place: places.run_folder(place, run_map.files))
    else:
        return [[place] for place in matching]
    return list(groups.values())


def _checkpoint(place: Place) -> tuple[str, int]:
    """Returns the folder of a run, and the step of a checkpoint such as run/checkpoint-20/trainer_state.json."""
    match = _CHECKPOINT.fullmatch(place.path)
    return (match["run"], int(match["step"])) if match else (place.path, 0)


def _read(files: Sequence[Place], run_map: RunMap, base: Folder, warnings: ImportWarnings) -> list[Log]:
    """Reads the files of one run, or one file with several runs. Unusable files and runs become warnings.

    Args:
      files: the files.
      run_map: the map.
      base: the imported folder.
      warnings: receives the reasons, and the numbers of skipped files and of refused runs.
    """
    groups = [files] if run_map.format == TENSORBOARD else [[file] for file in files]
    usable = []
    unusable = 0
    for group in groups:
        logs_of_group = list(logs.read(group, run_map, base))
        faults = [log for log in logs_of_group if log.fault]
        for log in faults:
            warnings.add(log.name, log.fault)
        if faults and len(faults) == len(logs_of_group):
            warnings.skipped[UNUSABLE] += len(group)
            unusable += 1
        else:
            warnings.refused += sum(log.name != group[0].path for log in faults)
        usable += [log for log in logs_of_group if not log.fault]
    if len(groups) == 1 or not usable:
        return usable
    try:
        if unusable:
            raise Unusable("is not imported, because another file of this run cannot be used")
        return [_joined(usable)]
    except Unusable as error:
        warnings.add(usable[0].name, error)
        warnings.refused += 1
        return []


def _joined(parts: Sequence[Log]) -> Log:
    """Joins the logs in several files of one run, in the order of their steps. Raises Unusable if they disagree."""
    first = parts[0]
    pieces: dict[str, list[Series]] = {}
    offset = 0.0
    for part in sorted(parts, key=_extent):
        for name in first.columns.keys() & part.columns.keys():
            if part.columns[name] != first.columns[name]:
                raise Unusable(f"has another value in column {brief(name)} than {part.place.path}, of the same run")
        ends = [offset]
        for tag, rows in {**part.series, "": part.rows}.items():
            if not len(rows.step):
                continue
            earlier = pieces.setdefault(tag, [])
            if earlier and earlier[-1].step.min() == rows.step.min():
                copy = earlier.pop()
                if tag and not copy.starts(rows):
                    raise Unusable(f"has other values of {brief(tag)} than {part.place.path}, a file of the same run")
            earlier.append(rows._replace(order=rows.order + offset))
            ends.append(earlier[-1].order.max())
        offset = max(ends) + 1
    tags = {tag: series.joined(rows) for tag, rows in pieces.items()}
    return first._replace(rows=tags.pop("", first.rows), series=tags)


def _extent(log: Log) -> tuple[int, int]:
    """Returns the first and the last step of a log."""
    steps = [int(step) for rows in log.series.values() for step in (rows.step.min(), rows.step.max())] or [0]
    return min(steps), max(steps)
