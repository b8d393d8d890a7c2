"""A user's own table: how it is read, split and made inputs, by pandas and scikit-learn; and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from results.bad_input import BadInput
from workloads import losses, registry
from workloads.datasets import table_files
from workloads.workload import Dataset, Splits

CITIES = ["Oslo", "Rome", "Bern", "Paris"]


def frame(rows: int = 203, seed: int = 0) -> pd.DataFrame:
    """Two numbers, a text with one value that is rare, classes of unequal size, and a price."""
    random = np.random.default_rng(seed)
    width = random.normal(5, 2, rows).round(3)
    city = random.choice(CITIES, rows).astype(object)
    city[7] = "RemoteStudy"
    kind = np.where(width > 6.5, "large", np.where(width < 4, "small", "some"))
    price = (1000 + 300 * width + random.normal(0, 50, rows)).round(2)
    return pd.DataFrame(
        {"width": width, "rooms": random.integers(1, 6, rows), "city": city, "kind": kind, "price": price}
    )


def written(folder: Path, data: pd.DataFrame | None = None, name: str = "own.csv") -> Path:
    data = frame() if data is None else data
    data.to_csv(folder / name, index=False)
    return folder / name


def of(file: Path, label: str | None = "kind", **options: Any) -> Dataset:
    return registry.dataset("table", {"path": str(file), "label": label, **options})


def counts(splits: Splits, classes: int) -> np.ndarray:
    """int64[3, classes]: rows of each class in train, validation and test."""
    parts = (splits.train, splits.validation, splits.test)
    return np.array([np.bincount(part.labels, minlength=classes) for part in parts if part is not None])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("validation", "test"), [(0.2, 0.2), (0.13, 0.31), (0.25, 0.0)])
def test_splits_have_as_many_of_each_class_as_scikit_learns(
    validation: float, test: float, seed: int, tmp_path: Path
) -> None:
    from sklearn.model_selection import train_test_split

    data = frame()
    row = of(written(tmp_path, data), validation=validation, test=test, seed=seed)
    splits = row.load()
    found = counts(splits, 3)
    for share, own in ((validation, found[1]), (test, found[2] if test else None)):
        if own is not None:
            _, theirs = train_test_split(data.kind, test_size=share, stratify=data.kind, random_state=0)
            assert own.tolist() == theirs.value_counts().sort_index().tolist()
            assert own.sum() == math.ceil(share * len(data))
    assert found.sum(axis=0).tolist() == data.kind.value_counts().sort_index().tolist()
    assert row.train_examples == found[0].sum()
    assert row.splits == (("train", "validation", "test") if test else ("train", "validation"))
    assert row.metrics is losses.CLASSIFICATION


def test_every_row_is_in_one_split_and_another_seed_draws_others(tmp_path: Path) -> None:
    data = pd.DataFrame({"number": np.arange(100.0), "label": np.arange(100) % 2})
    drawn = []
    for seed in (0, 1):
        splits = of(written(tmp_path, data), "label", seed=seed).load()
        assert splits.train is not None
        assert splits.test is not None
        parts = [part.inputs[:, 0] for part in (splits.train, splits.validation, splits.test)]
        assert len(np.unique(np.concatenate(parts))) == 100
        assert not np.array_equal(np.sort(parts[0]), parts[0])  # in random order
        drawn.append(np.sort(parts[0].round(4)).tolist())
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("classes", [(3, 3, 30), (4, 3), (3,) * 20])
@pytest.mark.parametrize(("validation", "test"), [(0.2, 0.2), (0.45, 0.45), (0.9, 0.05), (0.01, 0.01)])
def test_every_class_is_in_every_split_however_rare(
    classes: tuple[int, ...], validation: float, test: float, tmp_path: Path
) -> None:
    data = pd.DataFrame({"label": np.repeat(np.arange(len(classes)), classes)})
    data["number"] = np.arange(len(data)) + 0.5
    if len(data) < 10:
        data = pd.concat([data, data.assign(number=data.number + 20)])
    found = counts(of(written(tmp_path, data), "label", validation=validation, test=test).load(), len(classes))
    assert found.min() >= 1
    assert found.sum(axis=0).tolist() == data.label.value_counts().sort_index().tolist()


def test_inputs_are_standardized_by_the_training_split(tmp_path: Path) -> None:
    data = frame()
    data["alike"] = 3.5
    data["identity"] = np.arange(len(data))  # by which the rows of a split are told
    splits = of(written(tmp_path, data)).load()
    assert splits.train is not None
    assert splits.test is not None
    parts = (splits.train, splits.validation, splits.test)
    identity = np.concatenate([part.inputs[:, -1] for part in parts]).astype(np.float64)
    rows = np.argsort(np.argsort(identity))
    train = data.iloc[rows[: len(splits.train.labels)]]
    texts = sorted(train.city.unique())
    expected = np.column_stack(
        [
            (data.width - train.width.mean()) / train.width.std(ddof=0),
            (data.rooms - train.rooms.mean()) / train.rooms.std(ddof=0),
            *(data.city == text for text in texts),
            (data.price - train.price.mean()) / train.price.std(ddof=0),
            np.zeros(len(data)),
            (data.identity - train.identity.mean()) / train.identity.std(ddof=0),
        ]
    )[rows]
    inputs = np.concatenate([part.inputs for part in parts])
    assert inputs.dtype == np.float32
    np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=1e-6)
    labels = np.concatenate([part.labels for part in parts])
    assert [["large", "small", "some"][label] for label in labels] == data.kind.iloc[rows].tolist()


def test_a_text_that_training_lacks_is_no_input(tmp_path: Path) -> None:
    for seed in range(20):  # until the one row from elsewhere is not in training
        splits = of(written(tmp_path), seed=seed).load()
        assert splits.train is not None
        width = splits.train.inputs.shape[1]
        if width == 4 + len(CITIES):
            continue
        assert width == 3 + len(CITIES)
        indicators = np.concatenate([splits.validation.inputs, splits.test.inputs])[:, 2:-1]  # type: ignore[union-attr]
        assert sorted(indicators.sum(axis=1).tolist())[:2] == [0, 1]
        return
    pytest.fail("the row was in training whatever the seed")


def test_regression_has_units_and_agrees_with_scikit_learn(tmp_path: Path) -> None:
    from sklearn.metrics import mean_squared_error, r2_score

    data = frame()
    row = of(written(tmp_path, data), "price")
    assert row.options["task"] == "regression"
    assert (row.classes, row.loss, row.tuned) == (1, losses.squared_error, ())
    splits = row.load()
    assert splits.train is not None
    labels = splits.train.labels
    assert labels.dtype == np.float32
    assert labels.mean() == pytest.approx(0, abs=1e-6)
    assert labels.std() == pytest.approx(1, abs=1e-6)
    outputs = np.random.default_rng(1).normal(size=(len(labels), 1)).astype(np.float32)
    measured = {kind: float(metric.finish(metric.sums(outputs, labels, None))) for kind, metric in row.metrics.items()}
    # In own units: training labels are rows of the file, whose mean and deviation are not told.
    train = np.sort(data.price.to_numpy())
    deviation = (measured["squared_error"] / measured["loss"]) ** 0.5
    own = labels.astype(np.float64) * deviation
    own += train.mean() - own.mean()
    shift = np.median([np.min(np.abs(train - value)) for value in own[:20]])
    predicted = outputs[:, 0].astype(np.float64) * deviation + (own - labels * deviation).mean()
    assert shift < data.price.std()
    assert measured["squared_error"] == pytest.approx(mean_squared_error(own, predicted), rel=1e-5)
    assert measured["r2_error"] == pytest.approx(1 - r2_score(own, predicted), rel=1e-5)
    assert measured["loss"] == pytest.approx(mean_squared_error(labels, outputs[:, 0]), rel=1e-5)


BY_HAND = {
    "quoted": '"width","city"\n1.5,"Oslo, ""north"""\n2,"two\nlines"\n',
    "marked": '\ufeffwidth,city\n1.5,"Oslo, ""north"""\n2,"two\nlines"\n',
    "semicolons": 'width;city\n1.5;Oslo, "north"\n2;"two\nlines"\n',
    "tabs": 'width\tcity\n1.5\t"Oslo, ""north"""\n2\t"two\nlines"\n',
    "crlf": 'width,city\r\n1.5,"Oslo, ""north"""\r\n2,"two\nlines"\r\n',
    "spaces": ' width , city \n 1.5,"Oslo, ""north""" \n 2,"two\nlines"\n\n',
}


@pytest.mark.parametrize("way", BY_HAND)
def test_csv_as_people_and_programs_write_it(way: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(BY_HAND[way].encode())
    columns = table_files.read(tmp_path / "own.csv")
    assert list(columns) == ["width", "city"]
    width, city = columns.values()
    assert isinstance(width, table_files.Numbers)
    assert width.values.tolist() == [1.5, 2]
    assert isinstance(city, table_files.Texts)
    assert [city.texts[code] for code in city.codes] == ['Oslo, "north"', "two\nlines"]


def test_data_are_the_same_wherever_and_however_they_are_written(tmp_path: Path) -> None:
    data = frame()
    row = of(written(tmp_path, data))
    data.to_parquet(tmp_path / "data.parquet")
    data.astype({"city": "category", "rooms": "int8"}).to_parquet(tmp_path / "categories.parquet", compression="zstd")
    same = [written(tmp_path, data, "elsewhere.csv"), tmp_path / "data.parquet", tmp_path / "categories.parquet"]
    data.assign(number=np.arange(len(data))).to_csv(tmp_path / "more.csv", index=False)
    versions = {of(file).version() for file in same} | {of(tmp_path / "more.csv", drop=["number"]).version()}
    assert versions == {row.version()}
    others = [data.assign(width=data.width + 1e-9), data[::-1], data.rename(columns={"width": "length"}), data[:-1]]
    changed = {of(written(tmp_path, other)).version() for other in others}  # each in place of the first
    assert len(changed | versions) == 5
    assert of(tmp_path / "data.parquet", text=["rooms"]).version() not in changed | versions
    with pytest.raises(BadInput, match=r"own.csv has changed since the study was planned\. Run the same command again"):
        row.load()


def test_arrays(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(50, 3)).astype(np.float32), np.array(["no", "yes"])[random.integers(0, 2, 50)]
    np.savez(tmp_path / "own.npz", x=x, y=y)
    row = of(tmp_path / "own.npz", None)
    assert (row.classes, row.options["label"]) == (2, "y")
    assert row.load().validation.inputs.shape == (10, 3)
    np.savez(tmp_path / "own.npz", x=x, y=x[:, 0] * 2)
    assert of(tmp_path / "own.npz", None).options["task"] == "regression"


def test_columns_of_numbers_that_are_texts(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert of(file).load().validation.inputs.shape[1] + 4 == of(file, text=["rooms"]).load().validation.inputs.shape[1]
    assert of(file, "rooms", task="regression").classes == 1
    assert of(file, "rooms").classes == 5


@pytest.mark.parametrize("name", ["code", " code", "code  ", "\tcode", '" code"'])
def test_texts_are_kept_exactly_around_their_column_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "own").write_text(f"size,{name}\n" + "".join(f"{i},{i % 3:0{1 + i % 2}d}\n" for i in range(24)))
    found = table_files.read(tmp_path / "own", text=["code"])["code"]
    assert isinstance(found, table_files.Texts) and found.texts == ("0", "00", "01", "02", "1", "2")
    assert [found.texts[code] for code in found.codes[:4]] == ["0", "01", "2", "00"]


@pytest.mark.parametrize("whole", [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
def test_whole_numbers_that_float64_lacks_are_refused(whole: int, tmp_path: Path) -> None:
    (tmp_path / "own").write_text(f"a,b\n1,{2**53}\n2,{whole}\n")
    with pytest.raises(BadInput, match=rf"row 2 has {whole} in column b; integers go up to 2\*\*53"):
        table_files.read(tmp_path / "own")


def test_spaces_are_no_part_of_a_value_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("a,b\nx,1\n NA,2\n")
    with pytest.raises(BadInput, match="row 2 has no value in column a"):
        table_files.read(tmp_path / "own")


def test_a_first_line_without_an_end_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("a," * 2**20)
    with pytest.raises(
        BadInput, match=r"its first line has more than 1,048,576 bytes\. It should be CSV with a line of"
    ):
        table_files.read(tmp_path / "own")


@pytest.mark.parametrize("way", ["parquet", "arrays", "texts"])
def test_small_file_with_large_memory_is_refused_undecoded(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own"
    zeros = np.zeros((1_000_000, 8))
    if way == "arrays":
        with open(file, "wb") as opened:
            np.savez_compressed(opened, x=zeros, y=zeros[:, 0])
    elif way == "parquet":
        pd.DataFrame(zeros, columns=list("abcdefgh")).to_parquet(file)
    else:
        pd.DataFrame({"a": ["x" * 2_000_000] * 50}).to_parquet(file)
    assert file.stat().st_size < 200_000
    monkeypatch.setattr(table_files.memory, "available", lambda: 60_000_000)
    words = "has a text of 2,000,000 bytes" if way == "texts" else "needs about [0-9]+ MB of memory and 60 MB are free"
    with pytest.raises(BadInput, match=words):
        table_files.read(file)


def test_targets_are_fractions_of_a_constant_prediction(tmp_path: Path) -> None:
    file = written(tmp_path)
    splits = of(file).load()
    train, validation, _ = counts(splits, 3)
    constant = -(validation * np.log(train / train.sum())).sum() / validation.sum()
    for (metric, value), fraction in zip(of(file).targets, (0.75, 0.5, 0.25), strict=True):
        assert metric == "validation_loss"
        assert fraction * constant <= value < 1.1 * fraction * constant
    assert of(file, "price").targets == tuple(("validation_r2_error", value) for value in (0.75, 0.5, 0.25))
    about, targets = of(file).lines
    assert "kind (3 classes) from 3 columns of numbers and 1 column of texts" in about
    assert "121 train, 41 validation, 41 test" in about
    assert f"{constant:.4g}" in targets


TEXT = "\n".join(f"{i},{i / 2 + 1},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(30))
NAMES = "id,size,kind,label"
MISTAKES: list[tuple[str | bytes, dict[str, Any], str]] = [
    ("", {}, "is empty. It should be CSV"),
    (f"{NAMES}\n", {}, "has no rows, only the names of its columns, id, size"),
    (f"{NAMES}\n1,2,a,x\n", {}, "has 1 row. It needs at least 10"),
    (f"{NAMES}\n{TEXT}", {"label": "lable"}, r"table.label=lable is no column of .*; did you mean 'label'\?"),
    (f"{NAMES}\n{TEXT}", {"label": None}, "table.label is missing. Choose the column to predict: id, size, kind"),
    (f"{NAMES}\n{TEXT}", {"drop": ["label"]}, "table.label=label is left out by table.drop"),
    (f"{NAMES}\n{TEXT}", {"drop": ["ib"]}, r"table.drop: there is no column 'ib'; did you mean 'id'\?"),
    (f"{NAMES}\n{TEXT}", {"text": ["sise"]}, r"table.text: there is no column 'sise'; did you mean 'size'\?"),
    (f"{NAMES}\n{TEXT}", {"drop": ["id", "size", "kind"]}, "only has the column label"),
    (f"id,size,size,label\n{TEXT}", {}, "has 2 columns called 'size'"),
    (f",size,kind,label\n{TEXT}", {}, r"column 1 without a name looks like an index .* \"table.drop=\[''\]\""),
    (f"{NAMES}\n{TEXT}\n1,,a,x\n2,2,,x", {}, r"row 31 has no value in column size \(missing in 1 row\)"),
    (f"{NAMES}\n{TEXT}\n1,NA,a,x\n2,nan,a,x", {}, r"row 31 has no value in column size \(missing in 2 rows\)"),
    (f"{NAMES}\n{TEXT}\n1,inf,a,x", {}, "row 31 has inf in column size; numbers must be finite"),
    (f"{NAMES}\n{TEXT}\n1,?,a,x", {}, r"row 31 has '\?' in column size, most of whose values are numbers"),
    (f"{NAMES}\n{TEXT}\n1,2,a", {}, r"cannot be read: .*Row #32: Expected 4 columns, got 3"),
    (f"{NAMES}\n{TEXT}\n1,2,a,w", {}, "class 'w' of label has 1 row, and there are 3 splits"),
    (f"{NAMES}\n{TEXT}", {"label": "id"}, r"class '0' of id has 1 row, .*: table.task=regression"),
    (f"{NAMES}\n{TEXT}", {"task": "regression"}, r"row 1 has 'x' in column label, .* Use table.task=classification"),
    (
        f"{NAMES}\n{TEXT}",
        {"label": "size", "task": "classification"},
        "row 2 has 1.5 in column size, which is not a class",
    ),
    (f"{NAMES}\n{TEXT}", {"task": "clasification"}, r"unknown table.task .* did you mean 'classification'\?"),
    (f"{NAMES}\n{TEXT}", {"validation": 0.0}, "table.validation=0 and table.test=0.2 are not shares"),
    (f"{NAMES}\n{TEXT}", {"validation": 0.5, "test": 0.5}, "their sum below 1"),
    (f"{NAMES}\n{TEXT}", {"seed": -1}, "table.seed must be an integer of at least 0"),
    (f"{NAMES}\n{TEXT}".encode("utf-16"), {}, "is not UTF-8 text"),
    (f"{NAMES}\n{TEXT.replace('a', 'ä')}".encode("latin-1"), {}, "texts that are not UTF-8"),
    (f"ä,{NAMES[3:]}\n{TEXT}".encode("latin-1"), {}, "the names of its columns are not UTF-8"),
    (f"{NAMES}\n{TEXT}".replace(",", ";").replace(".", ","), {}, r"'1,0' in column size, .* a decimal point"),
    ("a\n" + "x\ny\n" * 20, {"label": "a"}, "only has the column a"),
    ("v,label\n" + "".join(f"{i},{'xy'[i % 2]}2020\n" for i in range(30)), {"label": "v", "task": None}, "has 1 row"),
    ("v,label\n" + "".join(f"2020-01-{i},{i % 2}\n" for i in range(10, 30)), {}, r"column v holds .* type date32"),
    ("v,label\n" + "".join(f"name {i},{i % 2}\n" for i in range(300)), {}, "column v has 300 different texts"),
    ("v,label\n" + "".join(f"{i},same\n" for i in range(30)), {}, "every row has 'same' in column label"),
    ("v,label\n" + "".join(f"{i},1.5\n" for i in range(30)), {}, "label is 1.5 in 6 train rows, .* R² needs different"),
    ("v,label\n" + "".join(f"{i},{i}e300\n" for i in range(30)), {}, "label has a standard deviation of inf"),
    ("v,label\n" + "".join(f"{i}e300,{i % 2}\n" for i in range(30)), {}, "column v has values too far apart"),
    ("v,label\n" + "".join(f"{i},{2**53 + i}\n" for i in range(2, 30)), {}, r"integers go up to 2\*\*53"),
    (b"PAR1 and nothing else", {}, "cannot be read"),
    (b"PK\x03\x04 and nothing else", {}, "cannot be read"),
]


@pytest.mark.parametrize(("content", "options", "words"), MISTAKES, ids=[words[:40] for *_, words in MISTAKES])
def test_what_cannot_be_used_is_one_line(content: str | bytes, options: Any, words: str, tmp_path: Path) -> None:
    file = tmp_path / "own"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=words) as raised:
        of(file, **{"label": "label"} | options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": np.zeros((20, 2))}, "holds arrays a. It should hold x and y"),
        ({"x": np.zeros((20, 2, 2)), "y": np.zeros(20)}, r"x is \[20, 2, 2\] and y \[20\]"),
        ({"x": np.zeros((20, 2)), "y": np.zeros(19)}, r"x is \[20, 2\] and y \[19\]"),
        ({"x": np.zeros((20, 2), complex), "y": np.zeros(20)}, "x is of type complex128"),
        ({"x": np.zeros((20, 2)), "y": np.array(["a", 1] * 10, object)}, "allow_pickle"),
    ],
)
def test_what_cannot_be_used_of_arrays_is_one_line(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(BadInput, match=words):
        of(tmp_path / "own.npz", None)


def test_parquet_with_what_is_neither_number_nor_text(tmp_path: Path) -> None:
    frame().assign(many=[[1, 2]] * 203).to_parquet(tmp_path / "own.parquet")
    with pytest.raises(BadInput, match=r"column many holds values of type list"):
        of(tmp_path / "own.parquet")
    frame().set_index(pd.Index(np.random.default_rng(0).permutation(203))).to_parquet(tmp_path / "own.parquet")
    with pytest.raises(BadInput, match=r"__index_level_0__ looks like an index"):
        of(tmp_path / "own.parquet")
