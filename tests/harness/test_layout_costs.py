"""The closed forms of the cost model, against the numbers that the book *How to Scale Your Model* works out."""

import math

import pytest

from harness.compiled import topologies
from results.costs import collectives, predictions
from results.costs.collectives import Collective
from results.costs.counts import Work
from results.costs.hardware import HARDWARE, HOP_SECONDS, Hardware, backend_of

V5P = HARDWARE["v5p"]
DAY = 86400


def intensity(hardware: Hardware) -> float:
    """FLOPs in the time that a byte takes over a ring: C / W_ici."""
    return hardware.flops / hardware.link_bandwidth


def data_batch(hardware: Hardware, axes: int = 1) -> float:
    """Tokens per device above which data parallelism and FSDP are compute-bound: C / (axes · W_ici)."""
    return intensity(hardware) / axes


def tensor_limit(hardware: Hardware, hidden: float, axes: int = 1) -> float:
    """Devices up to which tensor parallelism of a hidden layer is compute-bound: axes · F · W_ici / C."""
    return axes * hidden / intensity(hardware)


def best_fsdp(batch: float, hidden: float, devices: float, fsdp_axes: int = 2, tensor_axes: int = 1) -> float:
    """Number of FSDP devices that minimizes communication with tensor parallelism: √(B/F · M_X/M_Y · N)."""
    return math.sqrt(batch / hidden * fsdp_axes / tensor_axes * devices)


def mixed_batch(hardware: Hardware, hidden: float, fsdp_axes: int = 2, tensor_axes: int = 1) -> float:
    """Tokens per device above which FSDP with tensor parallelism is compute-bound: 4 α² / (M_X M_Y F)."""
    return 4 * intensity(hardware) ** 2 / (fsdp_axes * tensor_axes * hidden)


def far_batch(hardware: Hardware) -> float:
    """Tokens per slice above which data parallelism between slices is compute-bound: C / W_dcn."""
    assert hardware.far_bandwidth is not None
    return hardware.flops / hardware.far_bandwidth


def largest_model(hardware: Hardware) -> float:
    """Parameters of the largest model that fits on every device, with two bytes each and eight for Adam."""
    return hardware.memory_bytes / 10


@pytest.mark.parametrize(
    ("what", "ours", "book", "within"),
    [
        ("batch per chip, one axis", data_batch(V5P), 2550, 0.002),
        ("batch per chip, three axes", data_batch(V5P, 3), 850, 0.002),
        ("batch of a pod of 8,960 chips", 8960 * data_batch(V5P, 3), 7.6e6, 0.01),
        ("F for tensor parallelism 8 ways", 8 * intensity(V5P), 20_000, 0.03),
        ("Gemma 7B, F about 50k", tensor_limit(V5P, 50_000), 19, 0.04),
        ("LLaMA-3 70B, F about 30k, each axis", tensor_limit(V5P, 30_000), 11, 0.08),
        ("best FSDP of 64 chips", best_fsdp(48_000, 32_768, 64), 13.9, 0.02),
        ("batch per chip, mixed, F = 32,768", mixed_batch(V5P, 32_768), 400, 0.01),
        ("batch per chip, mixed, F = 30,000", mixed_batch(V5P, 30_000), 432, 0.01),
        ("batch per pod across DCN", far_batch(V5P), 76_000, 0.04),
        ("largest model without sharding", largest_model(V5P), 9e9, 0.07),
        ("chips for 16M tokens", 16e6 / data_batch(V5P, 3), 18_823, 0.001),
        ("LLaMA-3 70B, days on them", 15e12 * 70e9 * 6 / (18_823 * V5P.flops / 2) / DAY, 17, 0.02),
    ],
)
def test_the_numbers_of_the_book(what: str, ours: float, book: float, within: float) -> None:
    assert ours == pytest.approx(book, rel=within), what


def test_products_take_as_long_as_sums_at_the_closed_form_batch() -> None:
    """Of a layer of two matrices D × F, backward, over 4,096 chips of one axis: section 5 of the book."""
    chips, wide, hidden = 4096, 8192, 32768
    batch = chips * data_batch(V5P)
    one = Collective("all-reduce", 2 * wide * hidden, (tuple(range(chips)),), (2,), "gradients")
    flops = 4 * 2 * batch / chips * wide * hidden
    exchanged = collectives.total_seconds(V5P, [one], {"data": chips})
    latency = 2 * chips * HOP_SECONDS
    assert exchanged - latency == pytest.approx(flops / V5P.flops, rel=1e-3)
    # The step overlaps them in part, and matmuls do not reach the peak.
    rates = predictions.rates("v5p", "tpu", "bfloat16")
    assert rates is not None
    slower = flops / V5P.flops / 0.771
    step = predictions.seconds(Work(flops), rates, links=exchanged).middle
    assert step == pytest.approx((slower**1.5 + exchanged**1.5) ** (1 / 1.5))


H100 = HARDWARE["h100"]


def test_gpus_send_one_way_at_once_and_nodes_share_a_network() -> None:
    """Of an array of bfloat16, 4,096 × 65,536, gathered by the 8 GPUs of a node: 1.04 ms, as in the book on GPUs."""
    whole = 2 * 4096 * 65536
    node = Collective("all-gather", whole, (tuple(range(8)),), (), "a")
    latency = 4 * HOP_SECONDS
    assert collectives.exchange_seconds(H100, node, {"data": 8}) - latency == pytest.approx(1.04e-3, rel=0.01)
    both = Collective(
        "all-gather", whole, (tuple(range(8)),), (), "b"
    )  # a switch has no links of its own for each axis
    assert collectives.exchange_seconds(H100, both, {"a": 2, "b": 4}) >= whole * 7 / 8 / 4.5e11
    far = Collective("all-reduce", 1e9, (tuple(range(512)),), (), "c")  # 64 nodes of 400 GB/s
    hops = 64 * HOP_SECONDS
    assert collectives.exchange_seconds(H100, far, {"data": 512}) - hops == pytest.approx(2 * 63 / 64 * 1e9 / 4e11)
    one_of_each = Collective("all-gather", 1e9, tuple(tuple(range(i, 64, 8)) for i in range(8)), (), "d")
    seconds = collectives.exchange_seconds(H100, one_of_each, {"data": 8, "model": 8})
    assert seconds == pytest.approx(7 / 8 * 1e9 / 5e10, rel=1e-3), "each GPU alone has a part, and its own 50 GB/s"


def test_full_ring_uses_all_directions_of_a_torus() -> None:
    """256 cores of a v3 as 16 × 16: a sixteenth of what one ring of 256 takes."""
    v3, all_of_it = HARDWARE["v3"], (tuple(range(256)),)
    turned = Collective("all-to-all", 1e9, all_of_it, (), "a")
    ring = collectives.exchange_seconds(v3, turned, {"cores": 256})
    torus = collectives.exchange_seconds(v3, turned, {"x": 16, "y": 16})
    assert ring == pytest.approx(256 * 1e9 / 4 / v3.link_bandwidth, rel=1e-3)
    assert torus == pytest.approx(ring / 16, rel=1e-3)


def test_torus_directions_are_those_of_named_slices() -> None:
    rows = {"v2": "v2", "v3": "v3", "v4": "v4p", "v5e": "v5e", "v5p": "v5p", "v6e": "v6e", "tpu7x": "tpu7x"}
    assert {version: HARDWARE[row].axes for version, row in rows.items()} == topologies.DIRECTIONS
    assert [topologies.count(each) for each in ("v3:8x16", "v5e:4x4", "v4:2x2x1", "tpu7x:2x2x1")] == [256, 16, 4, 8]


def test_an_exchange_has_no_more_links_than_a_torus_has_axes() -> None:
    v5e, mesh = HARDWARE["v5e"], {"a": 2, "b": 2, "c": 2}
    over = Collective("all-reduce", 1e9, (tuple(range(8)),), (), "a")
    assert collectives.exchange_seconds(v5e, over, mesh) > 2 * 7 / 8 * 1e9 / (2 * v5e.link_bandwidth)
    assert collectives.exchange_seconds(V5P, over, mesh) < 2 * 7 / 8 * 1e9 / (2.9 * V5P.link_bandwidth)


def test_exchanges_over_two_axes_have_the_links_of_both() -> None:
    mesh = {"data": 4, "model": 4}
    over = {
        "one": Collective("all-gather", 1e9, tuple(tuple(range(i, i + 4)) for i in range(0, 16, 4)), (), "a"),
        "both": Collective("all-gather", 1e9, (tuple(range(16)),), (), "b"),
    }
    seconds = {name: collectives.exchange_seconds(V5P, each, mesh) for name, each in over.items()}
    assert seconds["one"] == pytest.approx(0.75e9 / 1.8e11 + 2e-6, rel=1e-6)
    assert seconds["both"] == pytest.approx(15 / 16 * 1e9 / 3.6e11 + 2 * 8**0.5 * 1e-6, rel=1e-6)
    passed = Collective("collective-permute", 9e10, ((0, 1), (1, 2), (2, 3), (3, 0)), (), "c")
    assert collectives.exchange_seconds(V5P, passed, {"data": 4}) == pytest.approx(1.0, rel=1e-5)
    turned = Collective("all-to-all", 1.8e11 / 4, ((0, 1, 2, 3),), (), "d")
    assert collectives.exchange_seconds(V5P, turned, {"data": 4}) == pytest.approx(0.25, rel=1e-4)


def test_axis_of_the_whole_slice_has_links_in_all_directions() -> None:
    """1 GB gathered over v5e 16x16: 5.6 ms over both directions, where one ring takes twice as long."""
    v5e, everyone = HARDWARE["v5e"], Collective("all-gather", 1e9, (tuple(range(256)),), (), "a")
    over = collectives.links(v5e, {"data": 256, "model": 1}, (16, 16))
    assert sorted(over.values()) == [16, 16]
    assert collectives.exchange_seconds(v5e, everyone, over) == pytest.approx(5.6e-3, rel=0.02)
    assert collectives.links(V5P, {"data": 8}, (2, 2, 2)) == collectives.links(V5P, {"data": 8})
    assert sorted(collectives.links(HARDWARE["v3"], {"cores": 256}, (8, 16)).values()) == [16, 16]  # 2 cores a chip


@pytest.mark.parametrize(
    ("row", "mesh", "sizes"),
    [
        ("v5p", {"data": 8}, [2, 2, 2]),
        ("v5e", {"data": 8}, [2, 4]),
        ("v5p", {"data": 12}, [2, 2, 3]),
        ("v5e", {"data": 7}, [7]),
        ("v5e", {"data": 16, "model": 16}, [16, 16]),
        ("v5p", {"data": 1}, [1]),
        ("h100", {"data": 8}, [8]),
        ("cpu", {"data": 2}, [2]),
    ],
)
def test_links_of_a_slice_whose_shape_is_not_given(row: str, mesh: dict[str, int], sizes: list[int]) -> None:
    """Its chips are taken to lie as evenly along its directions as their number allows."""
    found = collectives.links(HARDWARE[row], mesh)
    assert sorted(found.values()) == sizes


@pytest.mark.parametrize(("row", "passes"), [("v5e", 6), ("h100", 15), ("cpu", 1)])
def test_products_of_float32_take_the_passes_of_their_precision(row: str, passes: float) -> None:
    backend = "cpu" if row == "cpu" else backend_of(row)
    rounded, in_full = (predictions.rates(row, backend, precision) for precision in ("bfloat16", "float32"))
    assert rounded is not None and in_full is not None
    assert (rounded.flops, rounded.flops / in_full.flops) == (HARDWARE[row].flops, passes)


def test_all_to_all_over_many_axes_uses_the_longest_direction() -> None:
    """8 devices of two directions are 4 × 2, however many axes a mesh gives them."""
    v5e, everyone = HARDWARE["v5e"], Collective("all-to-all", 1e9, (tuple(range(8)),), (), "a")
    as_three = collectives.exchange_seconds(v5e, everyone, {"a": 2, "b": 2, "c": 2})
    as_two = collectives.exchange_seconds(v5e, everyone, {"a": 4, "b": 2})
    assert as_three == pytest.approx(as_two)


def test_a_switch_has_no_rings() -> None:
    """On a node of GPUs each sends its parts to the others at its full rate: 7/8 of 1 GB at 450 GB/s."""
    turned = Collective("all-to-all", 1e9, (tuple(range(8)),), (), "a")
    assert collectives.exchange_seconds(H100, turned, {"data": 8}) == pytest.approx(7 / 8 * 1e9 / 4.5e11, rel=0.01)
    passed = Collective("collective-permute", 4.5e11, ((0, 1), (1, 0)), (), "b")
    assert collectives.exchange_seconds(H100, passed, {"data": 8}) == pytest.approx(1.0, rel=1e-3)
    many = Collective("all-to-all", 1e9, (tuple(range(64)),), (), "c")  # 8 nodes: 7/8 of it leave at 50 GB/s
    assert collectives.exchange_seconds(H100, many, {"data": 64}) == pytest.approx(7 / 8 * 1e9 / 5e10, rel=0.01)
