"""Files of tables: CSV, Parquet, and ``.npz`` with arrays ``x`` and ``y``, as named columns of numbers and texts.

CSV is UTF-8, with or without a byte order mark, with a line of column names; values are separated by the comma, the
semicolon or the tab that the line of names has most of, and quoted as in RFC 4180 (``"a, b"``, ``"say ""so\"""``, line
breaks within). Numbers have a decimal point. Spaces around names and values are not part of them. Rows are counted from
1, without the line of names. In an ``.npz`` column i of ``x`` is called ``x<i>``, from 0, and the label ``y``.
"""

import re
import zipfile
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from results.bad_input import BadInput, meaning, nearest, number_of
from workloads import memory

if TYPE_CHECKING:
    import pyarrow as pa

HOW = "CSV with a line of column names, Parquet, or .npz with arrays x [rows, columns] and y [rows]"
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None")  # values of CSV that mean there is none
INDEX = "__index_level_0__"  # what pandas calls an index that it writes to Parquet
MOST_WHOLE = 2**53  # beyond it float64 does not have every whole number
COPIES = 4  # of a file's bytes in memory while it is read, at most


class Numbers(NamedTuple):
    """A column of numbers: float64[rows], finite; ``whole`` if the file has whole numbers, or true and false."""

    values: np.ndarray
    whole: bool


class Texts(NamedTuple):
    """A column of texts: int32[rows] into its different ``texts``, which are sorted."""

    codes: np.ndarray
    texts: tuple[str, ...]


Column: TypeAlias = Numbers | Texts


def read(file: Path, drop: Collection[str] = (), text: Collection[str] = ()) -> dict[str, Column]:
    """The columns of a file by their names, in its order.

    Args:
      file: CSV, Parquet or ``.npz``, told by what is in it.
      drop: columns to be left out.
      text: columns to be read as texts, though they look like numbers.

    Raises:
      BadInput: the file cannot be read; a column has no name, or that of another; a value is missing, infinite or of a
        type that is neither number nor text; a column looks like numbers with a few texts among them.
    """
    table = _read(file, text)
    try:
        names = [name.strip() for name in table.column_names]
    except UnicodeDecodeError:
        raise BadInput(f"{file}: the names of its columns are not UTF-8; save it as UTF-8") from None
    if not table.num_rows:
        raise BadInput(f"{file} has no rows beside the names of its columns, {', '.join(names[:12])}")
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{file} has {names.count(name)} columns called {name!r}; give each a name of its own")
    _check_there("table.drop", drop, names)
    _check_there("table.text", text, names)
    columns = {name: table.column(i) for i, name in enumerate(names) if name not in drop}
    for unnamed in ("", INDEX):
        if unnamed in columns:
            what = f"column {names.index(unnamed) + 1} has no name" if not unnamed else f"{INDEX} is no column of data"
            raise BadInput(
                f"{file}: {what}, as if it were an index that pandas wrote; leave it out with {chosen('drop', unnamed)}"
            )
    _check_complete(file, columns)
    return {name: _column(file, name, values, name in text) for name, values in columns.items()}


def is_arrays(file: Path) -> bool:
    """Whether a file is an ``.npz``, whose label has a name of its own."""
    with open(file, "rb") as opened:
        return opened.read(2) == b"PK"


def chosen(option: str, name: str) -> str:
    """The override that chooses a column, as typed in a shell."""
    return f"table.{option}=[{name}]" if re.fullmatch(r"[A-Za-z_][\w.-]*", name) else f"\"table.{option}=['{name}']\""


def _check_there(option: str, chosen: Iterable[str], names: Collection[str]) -> None:
    for name in chosen:
        if name not in names:
            raise BadInput(f"{option}: there is no column {name!r}; {nearest(name, names)}")


def _read(file: Path, text: Collection[str]) -> "pa.Table":
    """The file as Arrow reads it."""
    import pyarrow as pa

    if not file.exists():
        raise BadInput(f"table.path: {file} does not exist; it should be {HOW}{meaning(file)}")
    if not file.is_file():
        raise BadInput(f"table.path: {file} is not a file; it should be {HOW}")
    try:
        size = file.stat().st_size
        with open(file, "rb") as opened:
            start = opened.read(4096)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None
    if not size:
        raise BadInput(f"{file} is empty; it should be {HOW}")
    memory.require(COPIES * size, f"reading {file}", "use a machine with more, or fewer rows")
    try:
        if start.startswith(b"PAR1"):
            import pyarrow.parquet as pq

            with pq.ParquetFile(file) as opened_table:
                return opened_table.read()
        if start.startswith(b"PK"):
            return _arrays(file)
        if b"\0" in start:
            raise BadInput(f"{file} is not UTF-8 text; it should be {HOW}")
        return _csv(file, text)
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{file} cannot be read: {reason[:200]}; it should be {HOW}") from None


def _csv(file: Path, text: Collection[str]) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import csv

    with open(file, "rb") as opened:
        names = opened.readline()
    outside_quotes = re.sub(rb'"[^"]*"', b"", names)
    separator = max(b",;\t", key=lambda byte: outside_quotes.count(byte))
    parse = csv.ParseOptions(delimiter=chr(separator), newlines_in_values=True)
    padded = [column for name in text for column in (name, f" {name}", f"{name} ")]
    convert = csv.ConvertOptions(
        null_values=list(MISSING), strings_can_be_null=True, column_types=dict.fromkeys(padded, pa.string())
    )
    try:
        return csv.read_csv(file, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid:  # with one thread it knows the row
        return csv.read_csv(file, csv.ReadOptions(use_threads=False), parse, convert)


def _arrays(file: Path) -> "pa.Table":
    """The arrays of an ``.npz`` as columns."""
    import pyarrow as pa

    try:
        with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as members:
            if sorted(members) != ["x", "y"]:
                raise BadInput(f"{file} holds arrays {', '.join(sorted(members)) or 'none'}; it should hold x and y")
            x, y = members["x"], members["y"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, BadInput):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{file} cannot be read: {reason[:200]}; it should hold arrays x and y") from None
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise BadInput(f"{file}: x is {list(x.shape)} and y {list(y.shape)}; they should be [rows, columns] and [rows]")
    for name, array, kinds in (("x", x, "biuf"), ("y", y, "biufU")):
        if array.dtype.kind not in kinds:
            raise BadInput(
                f"{file}: {name} is of type {array.dtype}; it should be of numbers{' or texts' * (name > 'x')}"
            )
    return pa.table({f"x{i}": x[:, i] for i in range(x.shape[1])} | {"y": y})


def _check_complete(file: Path, columns: "dict[str, pa.ChunkedArray]") -> None:
    """Raises BadInput for the first missing value."""
    import pyarrow.compute as pc

    gaps = {}
    for name, values in columns.items():
        is_missing = pc.is_null(values, nan_is_null=True).to_numpy()
        if is_missing.any():
            gaps[name] = int(is_missing.argmax()), int(is_missing.sum())
    if gaps:
        name = min(gaps, key=lambda each: gaps[each][0])
        row, count = gaps[name]
        raise BadInput(
            f"{file}: row {row + 1} has no value in column {name} (missing in {number_of(count, 'row')}); fill it in, "
            f"remove the rows, or leave the column out with {chosen('drop', name)}"
        )


def _column(file: Path, name: str, values: "pa.ChunkedArray", as_text: bool) -> Column:
    """A column of Arrow's, without missing values, as numbers or texts."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(file, name, values, as_text)
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if not (whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        what = "texts that are not UTF-8" if pa.types.is_binary(kind) else f"values of type {kind}"
        raise BadInput(
            f"{file}: column {name} holds {what}, and there can be numbers and texts (UTF-8); convert it, or leave it "
            f"out with {chosen('drop', name)}"
        )
    if as_text:
        return _texts(file, name, values.cast(pa.string()), as_text)
    array = values.to_numpy() if not pa.types.is_decimal(kind) else values.cast(pa.float64()).to_numpy()
    numbers = np.asarray(array, np.float64) + 0.0  # −0 becomes 0
    wrong = ~np.isfinite(numbers) | (whole & (np.abs(numbers) > MOST_WHOLE))
    if wrong.any():
        row = int(wrong.argmax())
        limit = "whole numbers go up to 2**53" if np.isfinite(numbers[row]) else "numbers must be finite"
        raise BadInput(
            f"{file}: row {row + 1} has {array[row]} in column {name}; {limit}: correct it, or leave the column out "
            f"with {chosen('drop', name)}"
        )
    return Numbers(numbers, bool(whole))


def _texts(file: Path, name: str, values: "pa.ChunkedArray", as_text: bool) -> Texts:
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pc.utf8_trim_whitespace(values).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # of no rows
        encoded = encoded.combine_chunks()
    texts = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    if not as_text:
        _check_not_numbers(file, name, texts, codes)
    order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
    place = np.empty(len(texts), np.int32)
    place[order] = np.arange(len(texts), dtype=np.int32)
    return Texts(place[codes], tuple(texts[i] for i in order))


def _check_not_numbers(file: Path, name: str, texts: list[str], codes: np.ndarray) -> None:
    """Raises BadInput for a column of numbers, with a decimal comma or with something else among them."""
    comma = np.array([_is_number(text.replace(",", ".")) for text in texts], bool)
    if 2 * comma.sum() < len(texts) or not len(texts):
        return
    point = np.array([_is_number(text) for text in texts], bool)
    row = int((~point)[codes].argmax()) if not point.all() else 0
    raise BadInput(
        f"{file}: row {row + 1} has {texts[codes[row]]!r} in column {name}, most of whose values are numbers (with a "
        f"decimal point); correct it, leave the column out with {chosen('drop', name)}, or read it as texts with "
        f"{chosen('text', name)}"
    )


def _is_number(text: Any) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
