"""Reads tables (CSV, Parquet, or ``.npz`` with arrays ``x`` and ``y``) as named columns of numbers or texts.

CSV files are UTF-8, with or without a byte order mark, and start with a line of column names. The separator is a comma,
semicolon or tab, whichever is most frequent in that line. Values are quoted as in RFC 4180 (``"a, b"``, ``"say
""so\"""``, and line breaks within quotes). Numbers have a decimal point. Spaces around names and values are stripped.
Rows are numbered from 1, not counting the line of names. In an ``.npz``, column i of ``x`` is called ``x<i>``, counting
from 0, and the label is ``y``.
"""

import collections
import csv as csv_module
import math
import re
import sys
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from workloads import memory
from workloads.base import BadInput, nearest, number_of
from workloads.datasets.link_files import array_header, first_bytes, reading

if TYPE_CHECKING:
    import pyarrow as pa

HOW = "CSV with a line of column names, Parquet, or .npz with arrays x [rows, columns] and y [rows]"
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None")  # missing values in CSV
INDEX = "__index_level_0__"  # name of the index that pandas writes to Parquet
MOST_WHOLE = 2**53  # float64 is exact for integers up to this one
LONGEST_LINE = 1 << 20  # bytes in the line of names
CSV_COPIES = 12  # peak memory for reading CSV relative to the file size: "1," becomes three 8-byte numbers


class Numbers(NamedTuple):
    """A column of finite numbers, float64[rows]. ``whole`` is True if the file stores integers or booleans."""

    values: np.ndarray
    whole: bool


class Texts(NamedTuple):
    """A column of texts. Its codes, int32[rows], are indices into the distinct, sorted ``texts``."""

    codes: np.ndarray
    texts: tuple[str, ...]


Column = Numbers | Texts


def read(file: Path, drop: Collection[str] = (), text: Collection[str] = ()) -> dict[str, Column]:
    """Returns the columns of a file by name, in file order.

    Args:
      file: CSV, Parquet or ``.npz``. The format is detected from the content.
      drop: columns to ignore.
      text: columns to read as texts, even if they look like numbers.

    Raises:
      BadInput: the file cannot be read, column names are missing or not unique, a value is missing, infinite, or
        neither a number nor a text, or a column looks like numbers mixed with a few texts.
    """
    table = _read(file, drop, text)
    names = _names(file, table.schema)
    if not table.num_rows:
        raise BadInput(f"{file} has no rows, only the names of its columns, {', '.join(names[:12])}. Add rows.")
    _check_there("table.drop", drop, names)
    _check_there("table.text", text, names)
    columns = {name: table.column(i) for i, name in enumerate(names) if name not in drop}
    for unnamed in ("", INDEX):
        if unnamed in columns:
            what = INDEX if unnamed else f"column {names.index(unnamed) + 1} without a name"
            raise BadInput(
                f"{file}: {what} looks like an index that pandas wrote. Leave it out with {chosen('drop', unnamed)}."
            )
    _check_complete(file, columns)
    return {name: _column(file, name, values, name in text) for name, values in columns.items()}


def is_arrays(file: Path) -> bool:
    """Returns whether a file is an ``.npz``."""
    with open(file, "rb") as opened:
        return opened.read(2) == b"PK"


def chosen(option: str, name: str) -> str:
    """Returns the override that selects a column, as it is typed in a shell."""
    return f"table.{option}=[{name}]" if re.fullmatch(r"[A-Za-z_][\w.-]*", name) else f"\"table.{option}=['{name}']\""


def _check_there(option: str, chosen: Iterable[str], names: Collection[str]) -> None:
    for name in chosen:
        if name not in names:
            raise BadInput(f"{option}: there is no column {name!r}; {nearest(name, names)}")


def _names(file: Path, columns: "pa.Schema") -> list[str]:
    """Strips spaces around column names. Raises BadInput unless the names are unique and UTF-8."""
    try:
        names = [name.strip() for name in columns.names]
    except UnicodeDecodeError:
        raise BadInput(f"{file}: the names of its columns are not UTF-8. Save it as UTF-8.") from None
    for name, count in collections.Counter(names).items():
        if count > 1:
            raise BadInput(f"{file} has {count} columns called {name!r}. Give each a different name.")
    return names


def _read(file: Path, drop: Collection[str], text: Collection[str]) -> "pa.Table":
    """Reads a file as an Arrow table. Dropped columns of Parquet are null."""
    start = first_bytes(file, HOW, "table.path: ")
    if not start:
        raise BadInput(f"{file} is empty. It should be {HOW}.")
    with reading(file, f"It should be {HOW}."):
        if start.startswith(b"PAR1"):
            return _parquet(file, drop)
        if start.startswith(b"PK"):
            return _arrays(file)
        if b"\0" in start:
            raise BadInput(f"{file} is not UTF-8 text. It should be {HOW}.")
        _require(file, CSV_COPIES * file.stat().st_size)
        return _csv(file, text)


def _require(file: Path, needed: int) -> None:
    memory.require(needed, f"reading {file}", "Use a machine with more, or fewer rows")


def _parquet(file: Path, drop: Collection[str]) -> "pa.Table":
    """Reads the columns of a Parquet file. Dropped columns are null, and texts remain dictionary-encoded."""
    import pyarrow as pa

    from results import bounds

    with open(file, "rb") as opened:
        table = bounds.Parquet(opened, memory.available() or sys.maxsize)
        names = _names(file, table.schema_arrow)
        _check_there("table.drop", drop, names)
        kept = [field for field, name in zip(table.schema_arrow, names, strict=True) if name not in drop]
        for field in kept:
            _check_kind(file, field.name.strip(), field.type)
        groups = table.groups
        wanted = [field.name for field in kept]
        # Each column is in memory twice: as written, and as float64 or codes of texts.
        _require(file, table.decoded_bytes(wanted, groups) + 8 * table.metadata.num_rows * len(wanted))
        read = table.read(wanted, groups, plain=False)
    column_of = dict(zip(wanted, read.columns, strict=True))
    return pa.table({name: column_of.get(name, pa.nulls(len(read))) for name in table.schema_arrow.names})


def _csv(file: Path, text: Collection[str]) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import csv

    with open(file, "rb") as opened:
        names = opened.readline(LONGEST_LINE + 1)
    if len(names) > LONGEST_LINE:
        raise BadInput(f"{file}: its first line has more than {LONGEST_LINE:,} bytes. It should be {HOW}.")
    outside_quotes = re.sub(rb'"[^"]*"', b"", names)
    separator = max(b",;\t", key=lambda byte: outside_quotes.count(byte))
    parse = csv.ParseOptions(delimiter=chr(separator), newlines_in_values=True)
    with open(file, encoding="utf-8-sig", errors="replace", newline="") as lines:
        written = next(csv_module.reader(lines, delimiter=chr(separator)), [])
    convert = csv.ConvertOptions(
        null_values=list(MISSING),
        strings_can_be_null=True,
        column_types={name: pa.string() for name in written if name.strip() in text},
    )
    try:
        table = csv.read_csv(file, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid:  # reading with a single thread reports the row
        table = csv.read_csv(file, csv.ReadOptions(use_threads=False), parse, convert)
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(i, field, _without_spaces(table.column(i)))
    return table


def _without_spaces(texts: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Strips spaces around the texts of a CSV file, and replaces missing values with nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(trimmed, pa.array(MISSING)), None, trimmed)


def _arrays(file: Path) -> "pa.Table":
    """Reads the arrays of an ``.npz`` as columns."""
    import pyarrow as pa

    how = "It should hold arrays x and y."
    with reading(file, how), open(file, "rb") as opened, np.load(opened, allow_pickle=False) as members:
        _require(file, _array_bytes(opened))
        if sorted(members) != ["x", "y"]:
            raise BadInput(f"{file} holds arrays {', '.join(sorted(members)) or 'none'}. It should hold x and y.")
        x = members["x"]
        y = members["y"]
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise BadInput(
            f"{file}: x is {list(x.shape)} and y {list(y.shape)}. They should be [rows, columns] and [rows]."
        )
    for name, array, kinds, allowed in (("x", x, "biuf", "numbers"), ("y", y, "biufU", "numbers or texts")):
        if array.dtype.kind not in kinds:
            raise BadInput(f"{file}: {name} is of type {array.dtype}. It should hold {allowed}.")
    return pa.table({f"x{i}": x[:, i] for i in range(x.shape[1])} | {"y": y})


def _array_bytes(file: BinaryIO) -> int:
    """Returns the bytes needed for the arrays of an ``.npz``: as stored, by column, and as float64."""
    with zipfile.ZipFile(file) as archive:
        headers = [array_header(archive, name.removesuffix(".npy")) for name in archive.namelist()[:2]]
    return sum(math.prod(shape) * (2 * kind.itemsize + 8) for shape, kind in headers)


def _check_complete(file: Path, columns: "dict[str, pa.ChunkedArray]") -> None:
    """Raises BadInput for the first missing value."""
    import pyarrow.compute as pc

    gaps = {}
    for name, values in columns.items():
        is_missing = pc.is_null(values, nan_is_null=True).to_numpy()
        if is_missing.any():
            gaps[name] = int(is_missing.argmax()), int(is_missing.sum())
    if gaps:
        name = min(gaps, key=lambda column: gaps[column][0])
        row, count = gaps[name]
        raise BadInput(
            f"{file}: row {row + 1} has no value in column {name} (missing in {number_of(count, 'row')}). Fill it in, "
            f"remove the rows, or leave the column out with {chosen('drop', name)}."
        )


def _column(file: Path, name: str, values: "pa.ChunkedArray", as_text: bool) -> Column:
    """Converts an Arrow column without missing values to numbers or texts."""
    import pyarrow as pa

    kind = values.type
    _check_kind(file, name, kind)
    if pa.types.is_dictionary(kind):
        if _is_text(kind.value_type):
            return _texts(file, name, values, as_text)
        kind = kind.value_type
        values = values.cast(kind)
    if as_text and not _is_text(kind):
        kind = pa.string()
        values = values.cast(kind)
    if _is_text(kind):
        return _texts(file, name, values.dictionary_encode(), as_text)
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    array = values.to_numpy() if not pa.types.is_decimal(kind) else values.cast(pa.float64()).to_numpy()
    numbers = np.asarray(array, np.float64) + 0.0  # −0 becomes 0
    wrong = ~np.isfinite(numbers)
    if pa.types.is_integer(kind):  # compared before the conversion, which rounds 2**53 + 1
        wrong |= (array > MOST_WHOLE) | (array < -MOST_WHOLE if pa.types.is_signed_integer(kind) else False)
    if wrong.any():
        row = int(wrong.argmax())
        limit = "integers go up to 2**53" if np.isfinite(numbers[row]) else "numbers must be finite"
        raise BadInput(
            f"{file}: row {row + 1} has {array[row]} in column {name}; {limit}. Correct it, or leave the column out "
            f"with {chosen('drop', name)}."
        )
    return Numbers(numbers, bool(is_whole))


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_kind(file: Path, name: str, kind: "pa.DataType") -> None:
    """Raises BadInput unless the type of a column is numbers, texts or nulls."""
    import pyarrow as pa

    value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    checks = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not (_is_text(value_kind) or any(check(value_kind) for check in checks)):
        what = "texts that are not UTF-8" if pa.types.is_binary(value_kind) else f"values of type {value_kind}"
        raise BadInput(
            f"{file}: column {name} holds {what}, but only numbers and texts (UTF-8) are supported. Convert it, or "
            f"leave it out with {chosen('drop', name)}."
        )


def _texts(file: Path, name: str, values: "pa.ChunkedArray", as_text: bool) -> Texts:
    """Converts a dictionary-encoded column without missing values to texts."""
    encoded = values.unify_dictionaries().combine_chunks()
    # Only texts that occur are kept. Stripping may make two of them equal.
    used, places = np.unique(encoded.indices, return_inverse=True)
    trimmed = [text.strip() for text in encoded.dictionary.take(used).to_pylist()]
    texts, codes = np.unique(np.array(trimmed, object), return_inverse=True)
    codes_of_rows = codes.astype(np.int32)[places]
    if not as_text:
        _check_not_numbers(file, name, texts.tolist(), codes_of_rows)
    return Texts(codes_of_rows, tuple(texts))


def _check_not_numbers(file: Path, name: str, texts: list[str], codes: np.ndarray) -> None:
    """Raises BadInput for a column of numbers that have decimal commas or are mixed with texts."""
    comma = np.array([_is_number(text.replace(",", ".")) for text in texts], bool)
    if 2 * comma.sum() < len(texts) or not len(texts):
        return
    point = np.array([_is_number(text) for text in texts], bool)
    row = int((~point)[codes].argmax()) if not point.all() else 0
    raise BadInput(
        f"{file}: row {row + 1} has {texts[codes[row]]!r} in column {name}, most of whose values are numbers (with a "
        f"decimal point). Correct it, leave the column out with {chosen('drop', name)}, or read it as texts with "
        f"{chosen('text', name)}."
    )


def _is_number(text: Any) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
