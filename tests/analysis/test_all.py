"""``analysis all`` says and draws what its four commands do, one after the other."""

from collections.abc import Callable
from pathlib import Path


def test_all_is_its_commands_one_after_the_other(
    swept: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    code, out, _ = cli("all", "--store", swept, "--out", one)
    assert code == 0
    parts = [cli(name, "--store", swept) for name in ("steps", "fit")]
    parts.append(cli("figures", "--store", swept, "--out", several))
    assert out.replace(str(one), str(several)) == "".join(text for _, text, _ in parts)
    pictures = {path.name: path.read_bytes() for path in several.iterdir()}
    assert pictures
    assert {path.name: path.read_bytes() for path in one.iterdir()} == pictures


def test_all_of_a_store_that_is_empty_is_one_line(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = cli("all", "--store", tmp_path, "--out", tmp_path / "figures")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "figures").exists()
