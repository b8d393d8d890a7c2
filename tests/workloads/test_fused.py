"""The fused kernel against the program of XLA, and what becomes of machines that cannot compile it."""

import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from results.bad_input import BadInput
from workloads.factorization import fused, solvers
from workloads.factorization.solvers import Observed, System

ROWS, LENGTH, SLOTS, DIM = 12, 9, 30, 24


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache for all tests, as compiling takes seconds."""
    folder = Path(tmp_path_factory.getbasetemp()) / "kernels-cache"
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(folder))
    return folder


def systems(seed: int = 0) -> tuple[dict[str, jnp.ndarray], System]:
    """Some rows with from none to all of their links, as the kernel takes them and as the solvers do."""
    rng = np.random.default_rng(seed)
    counts = np.arange(ROWS) % (LENGTH + 1)
    table = np.concatenate([rng.normal(size=(SLOTS, DIM)), np.zeros((1, DIM))]).astype(np.float32)
    there = np.arange(LENGTH) < counts[:, None]
    columns = np.where(there, rng.integers(0, SLOTS, (ROWS, LENGTH)), SLOTS).astype(np.int32)
    arrays = {
        "table": table,
        "columns": columns,
        "counts": counts.astype(np.float32),
        "ridge": rng.uniform(0.1, 1, ROWS).astype(np.float32),
        "start": rng.normal(size=(ROWS, DIM)).astype(np.float32),
        "diagonal": rng.uniform(0, 2, DIM).astype(np.float32),
    }
    given = {name: jnp.asarray(array) for name, array in arrays.items()}
    links: Observed = solvers.sums_over_links(given["table"][given["columns"]])
    return given, System(links, given["diagonal"], given["ridge"], given["start"])


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_kernel_takes_the_steps_of_the_solver(steps: int) -> None:
    given, system = systems()
    found = np.asarray(fused.rows(**given, steps=steps))
    np.testing.assert_allclose(found, solvers.conjugate_gradients(system, steps), rtol=2e-4, atol=2e-5)


def test_many_steps_solve_the_equations() -> None:
    given, _ = systems(1)
    vectors = np.asarray(given["table"], np.float64)[given["columns"]]
    matrices = np.einsum("rld,rle->rde", vectors, vectors) + np.diag(given["diagonal"])
    matrices += np.asarray(given["ridge"])[:, None, None] * np.eye(DIM)
    exact = np.linalg.solve(matrices, vectors.sum(1)[..., None])[..., 0]
    np.testing.assert_allclose(fused.rows(**given, steps=60), exact, atol=1e-4)


def test_what_is_not_a_number_stays_so_in_its_own_row() -> None:
    given, _ = systems()
    given["start"] = given["start"].at[3, 5].set(np.nan)
    finite = np.isfinite(np.asarray(fused.rows(**given, steps=2))).all(axis=1)
    assert finite.tolist() == [row != 3 for row in range(ROWS)]


def test_a_kept_kernel_that_is_damaged_is_compiled_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = fused.library(DIM)
    kept = [(cache / "kernels" / f"{name}.{kind}").read_bytes() for kind in ("so", "sha256")]
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    folder = tmp_path / "kernels"
    folder.mkdir(0o700)
    library, beside = folder / f"{name}.so", folder / f"{name}.sha256"
    random = np.random.default_rng(0)
    for number in range(120):
        files = [bytearray(data) for data in kept]
        broken = files[number % 20 == 0]  # mostly the library, now and then its hash
        broken[random.integers(len(broken))] ^= 1 << random.integers(8)
        library.write_bytes(files[0])
        beside.write_bytes(files[1])
        assert fused._load(library) is None
    beside.unlink()
    assert fused._load(library) is None
    fused.library.__wrapped__(DIM)
    assert [library.read_bytes(), beside.read_bytes()] == kept
    assert sorted(folder.iterdir()) == [beside, library], "and nothing half-made is left"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    folder, elsewhere = tmp_path / "kernels", tmp_path / "elsewhere"
    fused._own_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    for mode in (0o720, 0o702):
        folder.chmod(mode)
        assert_refused(folder)
    folder.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        assert_refused(folder)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert_refused(folder)


def assert_refused(folder: Path) -> None:
    with pytest.raises(BadInput) as error:
        fused.library.__wrapped__(DIM)
    assert str(error.value).startswith(
        f"als.kernel=fused: {folder} is not a folder that only you can write to. Remove it"
    )


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("no-such-compiler", "CXX=no-such-compiler, which does not exist. Install one, or use als.kernel=xla."),
        ("false", "cannot compile the kernel (exit code 1). Use als.kernel=xla."),
    ],
)
def test_without_a_compiler_there_is_a_line(monkeypatch: pytest.MonkeyPatch, command: str, line: str) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(BadInput) as error:
        fused.library.__wrapped__(DIM)
    assert str(error.value).endswith(line)
    assert os.linesep not in str(error.value)
