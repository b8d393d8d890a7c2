"""Counts of decoders, compared with formulas by hand and with the counts that published steps state."""

import pytest

from results.costs import decoder_counts
from results.costs.decoder_counts import ATTENTION, NAMES, Decoder, Product

SMALL = Decoder(layers=2, width=8, heads=4, key_heads=2, head_width=3, hidden=16, vocabulary=10)
MIXED = SMALL._replace(experts=8, active_experts=2, shared_hidden=5, dense_layers=1, dense_hidden=7)


def test_parameters_of_grouped_queries_and_a_gate() -> None:
    block = 8 * 12 + 2 * 8 * 6 + 12 * 8 + 3 * 8 * 16  # queries, keys and values of two heads, out, gate, up, down
    assert decoder_counts.active_parameters(SMALL) == 2 * block + 8 * 10
    assert decoder_counts.stored_parameters(SMALL) == 2 * block + 2 * 8 * 10
    tied = SMALL._replace(tied=True, gated=False)
    assert decoder_counts.active_parameters(tied) == 2 * (block - 8 * 16) + 8 * 10
    assert decoder_counts.stored_parameters(tied) == decoder_counts.active_parameters(tied)


def test_a_token_uses_its_experts_and_all_are_stored() -> None:
    attention = 2 * (8 * 12 + 2 * 8 * 6 + 12 * 8)
    others = attention + 8 * 8 + 3 * 8 * 5 + 3 * 8 * 7 + 8 * 10  # router, shared expert, dense block, read-out
    assert decoder_counts.active_parameters(MIXED) == others + 2 * 3 * 8 * 16
    assert decoder_counts.stored_parameters(MIXED) == others + 8 * 3 * 8 * 16 + 8 * 10


def test_attention_is_causal_and_local() -> None:
    whole = 2 * 2 * 2 * 12 * 64  # layers, scores and sums, multiply-adds, width, length
    assert decoder_counts.attention_flops(SMALL, 64, causal=False) == whole
    assert decoder_counts.attention_flops(SMALL, 64) == whole / 2
    local = SMALL._replace(window=16, global_layers=1)
    near = 2 * 2 * 12 * (16 - 16 * 16 / (2 * 64))  # the first tokens see less than a window
    assert decoder_counts.attention_flops(local, 64) == pytest.approx(whole / 4 + near)
    wide = local._replace(global_head_width=6, global_key_heads=1)
    assert decoder_counts.attention_flops(wide, 64) == pytest.approx(whole / 2 + near)


def test_rematerialization_adds_a_pass_without_the_last_product() -> None:
    every = decoder_counts.product_flops(SMALL, NAMES)
    assert every == 6 * decoder_counts.active_parameters(SMALL)
    none = decoder_counts.product_flops(SMALL, ())
    assert none == every + 2 * (decoder_counts.active_parameters(SMALL) - 2 * 16 * 8 - 8 * 10)
    assert decoder_counts.attention_passes(()) == 4.5
    assert decoder_counts.attention_passes((ATTENTION,)) == 3.5


def test_traffic_of_one_product_is_its_operands_and_results() -> None:
    (up, down) = (each for each in decoder_counts.products(SMALL) if each.name in ("up", "down"))
    assert up == Product("up", 8, 16, 2, 2)
    assert (up.parameters, down.active) == (256, 256)
    alone = decoder_counts.activation_traffic(SMALL, 1, NAMES)
    halved = decoder_counts.activation_traffic(SMALL, 2, NAMES)
    assert alone / 2 < halved < alone  # the residual stream is not divided
    weights = decoder_counts.weight_traffic(SMALL, 1, 1, NAMES)
    assert weights == 3 * decoder_counts.active_parameters(SMALL)
    assert decoder_counts.weight_traffic(SMALL, 2, 1, NAMES) == weights / 2
    assert decoder_counts.weight_traffic(MIXED, 1, 4, NAMES) < decoder_counts.weight_traffic(MIXED, 1, 1, NAMES)
