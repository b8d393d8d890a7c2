"""The fused kernel under the address and undefined-behaviour sanitizers, against NumPy in float64."""

import os
import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

from workloads.factorization import fused

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-w")
SHAPES = ((1, 1, 1), (40, 17, 9), (300, 64, 40))  # slots, rows, links of a row
STEPS = (1, 2, 5)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A compiler whose programs can be looked at while they run."""
    folder = tmp_path_factory.mktemp("compiler")
    (folder / "one.cc").write_text("int main() { return 0; }")
    command = shutil.which(os.environ.get("CXX", "c++"))
    if command is None:
        pytest.skip("no C++ compiler")
    made = subprocess.run([command, *SANITIZERS, "one.cc", "-o", "one"], cwd=folder, capture_output=True, check=False)
    if made.returncode or subprocess.run([folder / "one"], check=False).returncode:
        pytest.skip(f"{command} comes without its sanitizers; apt-get install libasan and libubsan of its version")
    return command


def built(compiler: str, folder: Path, dim: int, *changes: tuple[str, str]) -> Path:
    """The kernel for vectors of one length, with what looks at it; ``changes`` are made to its source before."""
    source = fused.SOURCE.read_text()
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    (folder / "fused.cc").write_text(source)
    shutil.copy(Path(__file__).with_name("kernel.cc"), folder)
    command = [compiler, *fused.FLAGS, *SANITIZERS, f"-DDIM={dim}", "-I", jax.ffi.include_dir(), "kernel.cc"]
    subprocess.run([*command, "-o", f"kernel-{dim}"], cwd=folder, check=True)
    return folder / f"kernel-{dim}"


def drawn(shape: tuple[int, int, int], dim: int, seed: int) -> dict[str, np.ndarray]:
    """Rows with from none to all of their links; the last slot is linked, and stands for none, too."""
    slots, rows, length = shape
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, length + 1, rows)
    counts[-1] = length  # to the very end of what is given
    there = np.arange(length) < counts[:, None]
    links = np.where(there, rng.integers(0, slots, (rows, length)), slots - 1)
    links[-1, -1] = slots - 1
    return {
        "table": rng.normal(size=(slots, dim)).astype(np.float32),
        "links": links.astype(np.int32),
        "counts": counts.astype(np.float32),
        "shared": rng.uniform(0, 2, dim).astype(np.float32),
        "ridge": rng.uniform(0.5, 1, rows).astype(np.float32),
        "start": rng.normal(size=(rows, dim)).astype(np.float32),
    }


def run(program: Path, given: dict[str, np.ndarray], steps: int) -> subprocess.CompletedProcess[bytes]:
    sizes = np.array([len(given["table"]), *given["links"].shape, steps], np.int64)
    data = b"".join(array.tobytes() for array in (sizes, *given.values()))
    return subprocess.run([program], input=data, capture_output=True, check=False)


def solved(given: dict[str, np.ndarray], steps: int) -> np.ndarray:
    """Conjugate gradients in float64, row by row, as a textbook has them; preconditioned by the diagonal."""
    found = []
    for links, count, ridge, start in zip(
        given["links"], given["counts"], given["ridge"], given["start"].astype(float), strict=True
    ):
        vectors = given["table"][links[: int(count)]].astype(float)
        smooth = given["shared"].astype(float) + float(ridge)
        matrix = vectors.T @ vectors + np.diag(smooth)
        x, residual = start, vectors.sum(0) - matrix @ start
        direction = residual / smooth
        size = residual @ direction
        for _ in range(steps):
            length = size / (direction @ matrix @ direction) if size > 0 else 0.0
            x, residual = x + length * direction, residual - length * (matrix @ direction)
            last, size = size, residual @ (residual / smooth)
            direction = residual / smooth + (size / last if last > 0 else 0.0) * direction
        found.append(x)
    return np.array(found)


@pytest.mark.parametrize("dim", [7, *(pytest.param(d, marks=pytest.mark.attack) for d in (1, 3, 8, 13, 64, 128))])
def test_kernel_touches_only_its_arrays_and_is_correct(compiler: str, tmp_path: Path, dim: int) -> None:
    program = built(compiler, tmp_path, dim)
    for seed, shape in enumerate(SHAPES):
        for steps in STEPS:
            given = drawn(shape, dim, seed)
            done = run(program, given, steps)
            assert (done.returncode, done.stderr.decode()) == (0, ""), (shape, steps)
            found = np.frombuffer(done.stdout, np.float32).reshape(given["start"].shape)
            expected = solved(given, steps)
            assert np.abs(found - expected).max() <= 1e-3 * max(1.0, np.abs(expected).max()), (shape, steps)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("for (int j = 0; j < count; ++j) {\n    if", "for (int j = 0; j <= count; ++j) {\n    if", "AddressSanitizer"),
        (
            "x[i] = start.typed_data()[row * DIM + i]",
            "x[i + 1] = start.typed_data()[row * DIM + i]",
            "AddressSanitizer",
        ),
        ("float size = 0;", "int wide = 2147483647; wide += count; float size = 0; x[0] += wide;", "runtime error"),
    ],
    ids=["a link too many", "a number too far", "an overflow"],
)
def test_a_kernel_that_goes_too_far_is_caught(compiler: str, tmp_path: Path, old: str, new: str, told: str) -> None:
    program = built(compiler, tmp_path, 8, (old, new))
    done = run(program, drawn(SHAPES[1], 8, 0), 2)
    assert done.returncode and told in done.stderr.decode()
