"""Pay-off in closed form, and coverage of what it states where the truth is known."""

import io
import itertools

import numpy as np
import pandas as pd
import pytest

from analysis.fitting import fit_tables, points_file, regimes
from analysis.payoff import answer_tables, answers, subjects, time_to_target
from analysis.payoff.step_times import MEASURED, StepTimes

SIZES = 2.0 ** np.arange(13)
KNEE, PLATEAU, EXAMPLE_SECONDS = 64.0, 50.0, 1e-3


def write(file, **columns):
    pd.DataFrame(columns).to_csv(file, index=False)
    return file


def step_times(file, devices, batch_size, seconds, width=1.02, basis="measured"):
    ends = {"low": seconds / width, "high": seconds * width}
    kind = {"device_kind": "X", "basis": basis}
    return write(file, devices=devices, batch_size=batch_size, seconds_per_step=seconds, **ends, **kind)


def ask(cli, tmp_path, steps, devices, batch_size, seconds, *options, width=1.02):
    """The answer and the rows of a curve whose steps are known, by measured seconds per step."""
    points = write(tmp_path / "points.csv", batch_size=SIZES, steps=steps)
    times = step_times(tmp_path / "times.csv", devices, batch_size, seconds, width)
    words = ("payoff", "--points", points, "--measured", times, "--csv", *options)
    answer, rows = cli(*words), cli(*words, "--times")
    assert answer[0] == rows[0] == 0, (answer, rows)
    (row,) = pd.read_csv(io.StringIO(answer[1])).to_dict("records")
    table = pd.read_csv(io.StringIO(rows[1]))
    return row, table[table["measured_seconds"].notna()].reset_index(drop=True)


def test_perfect_scaling_costs_the_same_on_any_device_count(cli, tmp_path):
    steps = 2.0**22 / SIZES
    devices, batch = (side.ravel() for side in np.meshgrid(2.0 ** np.arange(9), SIZES))
    fits_in = batch >= devices
    devices, batch = devices[fits_in], batch[fits_in]
    row, rows = ask(cli, tmp_path, steps, devices, batch, EXAMPLE_SECONDS * batch / devices)
    whole = 2**22 * EXAMPLE_SECONDS
    assert rows["devices"].tolist() == [2**i for i in range(9)]
    np.testing.assert_allclose(rows["measured_seconds"], whole / rows["devices"], rtol=0.01)
    np.testing.assert_allclose(rows["measured_device_hours"], whole / 3600, rtol=0.01)
    # Nobody saw an end: the answer has one side.
    assert (row["measured_verdict"], row["measured_devices_low"]) == ("at_least", 256)
    assert row["measured_devices"] == row["measured_devices_low"] and np.isnan(row["measured_devices_high"])
    assert (row["batch_verdict"], row["batch_size_low"]) == ("at_least", SIZES[-1])


def test_on_a_plateau_devices_only_cost(cli, tmp_path):
    row, rows = ask(cli, tmp_path, np.full(len(SIZES), PLATEAU), SIZES, SIZES, np.full(len(SIZES), 0.1))
    np.testing.assert_allclose(rows["measured_seconds"], 0.1 * PLATEAU, rtol=0.01)
    np.testing.assert_allclose(rows["measured_device_hours"], SIZES * 0.1 * PLATEAU / 3600, rtol=0.01)
    assert rows.loc[rows["measured_on_front"] == "yes", "devices"].max() <= 2  # within rounding of the fit
    assert (row["measured_verdict"], row["measured_devices_high"]) == ("at_most", 1)
    assert np.isnan(row["measured_devices_low"])


@pytest.mark.parametrize("sharpness", [1.0, 4.0])
@pytest.mark.parametrize("each", [1, 4])
def test_a_knee_between_them(cli, tmp_path, sharpness, each):
    """Every device takes ``each`` examples a step: time 1/n below the knee, a cost that grows with n beyond."""

    def steps(batch):
        return PLATEAU * (1 + (KNEE / batch) ** sharpness) ** (1 / sharpness)

    devices = SIZES[: len(SIZES) - int(np.log2(each))]
    row, rows = ask(cli, tmp_path, steps(SIZES), devices, devices * each, np.full(len(devices), 0.1), "--gain", "25")
    seconds = 0.1 * steps(devices * each)
    np.testing.assert_allclose(rows["measured_seconds"], seconds, rtol=0.02)
    np.testing.assert_allclose(rows["measured_device_hours"], devices * seconds / 3600, rtol=0.02)
    gains = seconds[:-1] / seconds[1:]
    last = 2 * devices[np.flatnonzero(gains >= 1.25)[-1]]
    assert (row["measured_verdict"], row["measured_devices"]) == ("identified", last)
    assert row["measured_devices_low"] <= last <= row["measured_devices_high"]
    if sharpness == 1:  # (1 + K/B) / (1 + K/2B) = 1.25 at B = 1.5 K
        assert row["batch_size"] == pytest.approx(3 * KNEE, rel=0.05)
    # Limits: half the time on twice the devices at the same cost, then no gain at all.
    hours = rows["measured_device_hours"]
    if sharpness == 4:
        below, above = devices * each <= KNEE / 4, devices * each >= KNEE * 4
        np.testing.assert_allclose(hours[below], hours[0], rtol=0.02)
        np.testing.assert_allclose(hours[above] / devices[above], 0.1 * PLATEAU / 3600, rtol=0.02)
    assert (hours.diff().dropna() > -1e-3 * hours.max()).all()


def predict(cli, tmp_path, steps, seconds, *options):
    """The answer and the rows that times of one device predict of more, without communication."""
    points = write(tmp_path / "points.csv", batch_size=SIZES, steps=steps)
    times = step_times(tmp_path / "times.csv", np.ones(len(SIZES)), SIZES, seconds)
    words = ("payoff", "--points", points, "--measured", times, "--csv", *options)
    (row,) = pd.read_csv(io.StringIO(cli(*words)[1])).to_dict("records")
    return row, pd.read_csv(io.StringIO(cli(*words, "--times")[1]))


def test_predicted_perfect_scaling_costs_the_same_everywhere(cli, tmp_path):
    """A step on n devices takes E/B · t·B/n: time E·t/n, cost E·t, whatever the batch size."""
    row, rows = predict(cli, tmp_path, 2.0**22 / SIZES, EXAMPLE_SECONDS * SIZES)
    whole = 2**22 * EXAMPLE_SECONDS
    assert rows["devices"].tolist() == SIZES.tolist()
    np.testing.assert_allclose(rows["predicted_seconds"], whole / SIZES, rtol=0.01)
    np.testing.assert_allclose(rows["predicted_device_hours"], whole / 3600, rtol=0.01)
    assert (row["predicted_verdict"], row["predicted_devices_low"]) == ("at_least", SIZES[-1])
    assert row["predicted_devices"] == row["predicted_devices_low"] and np.isnan(row["predicted_devices_high"])


def test_predicted_costs_grow_linearly_on_a_plateau(cli, tmp_path):
    """Each example is waste beyond the first of each device: time P·t on any number, cost n·P·t."""
    row, rows = predict(cli, tmp_path, np.full(len(SIZES), PLATEAU), EXAMPLE_SECONDS * SIZES)
    np.testing.assert_allclose(rows["predicted_seconds"], PLATEAU * EXAMPLE_SECONDS, rtol=0.01)
    np.testing.assert_allclose(rows["predicted_device_hours"], SIZES * PLATEAU * EXAMPLE_SECONDS / 3600, rtol=0.01)
    assert rows["predicted_batch_size"].tolist() == SIZES.tolist()
    assert (row["predicted_verdict"], row["predicted_devices_high"]) == ("at_most", 1)


def test_predicted_time_falls_until_the_critical_batch_size(cli, tmp_path):
    """A corner at the knee: time P·t·max(K/n, 1), cost flat up to n = K and n·P·t beyond; the fit rounds the corner."""
    steps = PLATEAU * np.maximum(KNEE / SIZES, 1.0)
    row, rows = predict(cli, tmp_path, steps, EXAMPLE_SECONDS * SIZES, "--gain", "50")
    seconds, hours, least = rows["predicted_seconds"], rows["predicted_device_hours"], PLATEAU * EXAMPLE_SECONDS
    below, above = SIZES <= KNEE / 2, SIZES >= 2 * KNEE
    np.testing.assert_allclose(seconds[below], least * KNEE / SIZES[below], rtol=0.03)
    np.testing.assert_allclose(hours[below], least * KNEE / 3600, rtol=0.03)
    np.testing.assert_allclose(seconds[above], least, rtol=0.03)
    np.testing.assert_allclose(hours[above], SIZES[above] * least / 3600, rtol=0.03)
    assert row["predicted_verdict"] == "identified"
    assert row["predicted_devices"] == KNEE  # of all doublings those up to the knee gain 100 %, those beyond nothing


def test_communication_ends_it_sooner(cli, tmp_path):
    steps = PLATEAU * (1 + KNEE / SIZES)
    free, _ = ask(cli, tmp_path, steps, SIZES, SIZES, np.full(len(SIZES), 0.1))
    slower = 0.1 + 0.002 * (SIZES - 1)
    busy, rows = ask(cli, tmp_path, steps, SIZES, SIZES, slower)
    np.testing.assert_allclose(rows["measured_seconds"], steps * slower, rtol=0.02)
    gains = (steps * slower)[:-1] / (steps * slower)[1:]
    assert busy["measured_devices"] == SIZES[np.argmin(gains >= 1.2)]
    assert busy["measured_devices"] < free["measured_devices"]


def test_both_uncertainties_are_in_the_bands():
    rng = np.random.default_rng(3)
    steps = PLATEAU * (1 + KNEE / SIZES) * np.exp(rng.normal(0, 0.1, len(SIZES)))
    fit = regimes.fit(SIZES, steps, steps)

    def bands(width):
        return time_to_target.pay_off(
            times(np.full(len(SIZES), 0.1), width), time_to_target.step_curves(fit), 0.2, fit.verdict
        )

    def octaves(found):
        return np.log2(found.high / found.low)

    alone, both = octaves(bands(0.0)), octaves(bands(0.5))
    own = 2 * 0.5 / np.log(2)
    assert (alone > 0.05).all()  # the curve's
    assert (both > np.maximum(alone, own)).all() and (both < alone + own).all()


def times(seconds, width):
    widths = np.full(len(SIZES), width)
    return StepTimes("X", MEASURED, "", SIZES, SIZES, seconds, widths, widths, np.zeros(2))


def test_statements_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    true_steps, true_seconds, width = PLATEAU * (1 + KNEE / SIZES), 0.1 + 1e-4 * SIZES, 0.05
    truth = true_steps * true_seconds
    last = SIZES[np.argmin(truth[:-1] / truth[1:] >= 1.2)]
    inside, stated, held = [], 0, 0
    for _ in range(150):
        steps = true_steps * np.exp(rng.normal(0, 0.1, len(SIZES)))
        fit = regimes.fit(SIZES, steps, steps)
        seconds = true_seconds * np.exp(rng.normal(0, width, len(SIZES)))
        found = time_to_target.pay_off(times(seconds, 1.645 * width), time_to_target.step_curves(fit), 0.2, fit.verdict)
        inside.append((found.low <= truth) & (truth <= found.high))
        stated += found.last.verdict != "not_identified"
        held += not (found.last.low > last or found.last.high < last)  # an end that is not stated is never wrong
    assert np.mean(inside) >= 0.88
    assert stated >= 135 and held >= 135


def test_a_pareto_front_is_what_no_other_beats():
    rng = np.random.default_rng(1)
    for _ in range(50):
        seconds, cost = rng.integers(1, 6, (2, 8)).astype(float)
        front = time_to_target.on_front(seconds, cost)
        for i in range(8):
            beaten = any(
                seconds[j] <= seconds[i] and cost[j] <= cost[i] and (seconds[j] < seconds[i] or cost[j] < cost[i])
                for j in range(8)
            )
            assert front[i] == (not beaten)


def test_a_curve_of_one_side_has_an_answer_of_one_side():
    for steps, ends in ((2.0**22 / SIZES, ("low",)), (np.full(len(SIZES), PLATEAU), ("high",))):
        fit = regimes.fit(SIZES, steps, steps)
        assert fit.verdict == {"low": "at_least", "high": "at_most"}[ends[0]]
        for gain in (0.05, 0.2, 0.5, 0.9):
            found = []
            same = times(np.full(len(SIZES), 0.1), 0.02)
            for verdict in (fit.verdict, "not_identified"):
                found.append(time_to_target.pay_off(same, time_to_target.step_curves(fit), gain, verdict).last)
            for one in found:
                stated = {end for end in ("low", "high") if np.isfinite(getattr(one, end))}
                assert stated <= set(ends) and np.isfinite(one.best)
            assert found[-1].verdict == "not_identified"


def test_where_the_shape_is_refused_nothing_two_sided_is_said():
    steps = 1000 * SIZES**-0.6  # no slope of -1 anywhere
    noisy = steps * np.exp(np.random.default_rng(0).normal(0, 0.01, len(SIZES)))
    points_fit = points_file.of_steps(pd.Series(SIZES), pd.Series(noisy))
    assert points_fit.verdict in ("at_least", "not_identified")
    curves = time_to_target.step_curves(points_fit.fit)
    same = times(np.full(len(SIZES), 0.1), 0.02)
    assert time_to_target.pay_off(same, curves, 0.2, points_fit.verdict).last.verdict in ("at_least", "not_identified")


def subject(steps, sizes=SIZES):
    return subjects.Subject({}, "d", points_file.of_steps(pd.Series(sizes), pd.Series(steps)), ())


def alone(tmp_path, sizes, seconds, width=1.001):
    """Measured times of one device at some batch sizes."""
    return step_times(tmp_path / "alone.csv", np.ones(len(sizes)), sizes, seconds, width)


def fixed_and_each(batch):
    """Seconds of a step on one device: as many for any batch as for 16 examples more."""
    return 1e-3 * (16 + batch)


def soonest(steps, numbers):
    """Time to target without communication, by trying every batch size that so many devices can divide."""
    share = np.arange(1, SIZES[-1] + 1)
    return [min(steps(n * each) * fixed_and_each(each) for each in share[n * share <= SIZES[-1]]) for n in numbers]


@pytest.mark.slow
def test_answer_does_not_depend_on_the_timed_batch_sizes(tmp_path):
    """All subsets of the times of one device: statements are narrower or wider, and none is wrong."""

    def steps(batch):
        return PLATEAU * (1 + KNEE / batch)

    true = np.array(soonest(steps, SIZES))
    last = SIZES[np.argmin(true[:-1] / true[1:] >= 1.2)]
    one, rows = subject(steps(SIZES)), [1.0, 2.0, 8.0, 32.0, 128.0, 512.0, 4096.0]
    said = []
    for count in range(2, len(rows) + 1):
        for sizes in map(np.array, itertools.combinations(rows, count)):
            (found,) = answers.answers([one], measured=alone(tmp_path, sizes, fixed_and_each(sizes)))
            if "predicted" not in found.pay_offs:
                continue
            pay_off, truth = (
                found.pay_offs["predicted"],
                true[np.searchsorted(SIZES, found.pay_offs["predicted"].devices)],
            )
            assert ((pay_off.low <= truth) & (truth <= pay_off.high)).all(), sizes
            assert not (pay_off.last.low > last or pay_off.last.high < last), (sizes, pay_off.last)
            if pay_off.last.verdict == "identified":
                assert pay_off.last.low <= pay_off.last.best <= pay_off.last.high
            said.append(pay_off.last.verdict)
    (found,) = answers.answers([one], measured=alone(tmp_path, SIZES, fixed_and_each(SIZES)))
    assert (found.pay_offs["predicted"].last.verdict, found.pay_offs["predicted"].last.best) == ("identified", last)
    assert said.count("not_identified") < len(said) / 2  # subsets that say something


def test_gains_do_not_depend_on_the_timed_batch_sizes(tmp_path):
    def steps(batch):
        return PLATEAU * (1 + KNEE / batch)

    sizes = np.array([1.0, 4, 8, 16, 64, 128, 512, 1024, 4096])
    (found,) = answers.answers([subject(steps(SIZES))], measured=alone(tmp_path, sizes, fixed_and_each(sizes)))
    numbers = found.pay_offs["predicted"].devices
    assert numbers.tolist() == SIZES.tolist()
    true = np.array(soonest(steps, numbers))
    np.testing.assert_allclose(found.pay_offs["predicted"].gains.best, true[:-1] / true[1:], rtol=0.03)


def test_only_bounds_hold_in_a_gap(tmp_path):
    """Most numbers of devices have their best share where nothing was timed: no lower end is stated. 32 is true."""
    steps = PLATEAU * (1 + KNEE / SIZES)
    sizes = np.array([1.0, 2.0, 2048.0, 4096.0])
    file = alone(tmp_path, sizes, fixed_and_each(sizes))
    (found,) = answers.answers([subject(steps)], measured=file)
    assert found.pay_offs["predicted"].last.verdict == "at_most" and found.pay_offs["predicted"].last.high >= 32
    (note,) = [note for note in found.notes if "between" in note]
    assert note == "no batch size was timed on 1 device between 2 and 2,048, so only bounds hold between them"


def test_a_missing_doubling_ends_the_answer(tmp_path, cli):
    devices = np.array([1.0, 2.0, 8.0, 16.0])
    seconds = np.array([10, 6, 6, 4.5])
    steps = 2.0**22 / SIZES

    def asked(devices, seconds):
        batch = np.full(len(devices), 64.0)
        row, _ = ask(cli, tmp_path, steps, devices, batch, seconds)
        return row["measured_verdict"], row["measured_devices_low"], row["reason"]

    verdict, low, reason = asked(devices, seconds)
    assert (verdict, low) == ("at_least", 2)  # from 2 to 8 nothing was gained
    assert "measured on 2 and 8 devices but not on 4, so no doubling beyond 2 is judged" in reason
    verdict, low, reason = asked(devices[[0, 2, 3]], seconds[[0, 2, 3]])
    assert verdict == "not_identified" and "measured on 1 and 8 devices but not on 2, so no doubling" in reason
    assert asked(np.array([3.0, 4, 8]), np.array([8.0, 6, 4]))[:2] == ("at_least", 8)


def test_gains_of_predicted_times_keep_an_error_of_their_own(tmp_path, cli):
    """Ranges of × / 2 that all rows have in common do not make a gain exact."""
    points = write(tmp_path / "points.csv", batch_size=SIZES, steps=2.0**22 / SIZES)
    for width, own in ((2.0, 1.12), (1.05, 1.05)):
        rows = step_times(tmp_path / "p.csv", SIZES, SIZES, np.full(len(SIZES), 0.1), width, basis="predicted")
        (found,) = answers.answers(subjects.of_file(points), predicted=rows)
        gains = found.pay_offs["predicted"].gains
        np.testing.assert_allclose(gains.best, 2, rtol=0.01)
        np.testing.assert_allclose(gains.high / gains.best, own**2**0.5, rtol=0.01)
        np.testing.assert_allclose(gains.low / gains.best, own ** -(2**0.5), rtol=0.01)
        seconds = found.pay_offs["predicted"].high / found.pay_offs["predicted"].seconds
        np.testing.assert_allclose(seconds, width, rtol=0.01)


def test_a_batch_size_below_the_curve_is_a_share(tmp_path, cli):
    """Times at batch sizes that the curve does not reach: a share of a device, or of no use."""
    sizes = SIZES[6:]
    points = write(tmp_path / "points.csv", batch_size=sizes, steps=PLATEAU * (1 + KNEE / sizes))
    timed = np.array([16.0, 32.0, 64.0, 256.0, 1024.0, 4096.0, 8192.0])
    times = step_times(tmp_path / "times.csv", np.ones(len(timed)), timed, fixed_and_each(timed))
    out = cli("payoff", "--points", points, "--measured", times)[1]
    assert "measured at batch sizes 16, 32, outside the curve: used only as one device's share" in out
    assert "measured at batch size 8,192, outside the curve: not used" in out
    times = step_times(tmp_path / "times.csv", np.full(len(timed), 2.0), timed, fixed_and_each(timed))
    out = cli("payoff", "--points", points, "--measured", times)[1]
    assert "measured at batch sizes 16, 32, 8,192, outside the curve: not used" in out


def test_answers_in_words_follow_the_numbers_of_a_fit():
    points_fit = points_file.of_steps(pd.Series(SIZES), pd.Series(PLATEAU * (1 + KNEE / SIZES)))
    row = answer_tables.of_fits(pd.DataFrame({"panel": ["a"]}), [points_fit]).iloc[0]
    assert (row["panel"], row["verdict"]) == ("a", "identified")
    assert tuple(row[list(fit_tables.KEPT)]) == (*points_fit.extents_in_words, points_fit.hyperbola_in_words)
