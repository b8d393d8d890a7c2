"""A kind of figure: the best error that trials come to within budgets of steps, and of examples."""

from collections.abc import Iterator, Sequence

from analysis.figures import asked as asking
from analysis.figures import pages
from analysis.figures.asked import PRUNED, Asked
from analysis.fitting import curves
from analysis.plotting import best
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Skipped
from analysis.trials import budgets, trials
from analysis.workloads import WorkloadStudies
from results.plans.study import Target

MOST_BUDGETS = 8


def within(found: Sequence[WorkloadStudies], asked: Asked) -> Iterator[Picture | Skipped]:
    """One picture per workload and metric, a panel for budgets of steps and one for budgets of examples."""
    for workload, metric in asking.metrics(found, asked):
        what = f"budget of {workload.title}"
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        of_study = trials.of_commits(workload.commits, Target(metric, 0.0), strict=asked.rule.strict)
        counted = [
            set(curves.counting_trials(of_study[commit.name], asked.rule)["trial"]) for commit in workload.commits
        ]
        panels = _panels(workload, metric, counted, asked)
        if not panels:
            yield Skipped(what, f"no trial that counts measured {metric}")
            continue
        fewest, most = min(map(len, counted)), max(map(len, counted))
        count = f"{most:,}" if fewest == most else f"{fewest:,}–{most:,}"
        goals = [f"{workload.title} · best of {count} trials, where they were planned to run that long"]
        names = [*pages.names([workload]), metric]
        symbols = best.symbols(pages.stops_at(workload, metric))
        yield pages.picture("Best error within a budget", goals, panels, symbols, names, asked)


def _panels(workload: WorkloadStudies, metric: str, counted: Sequence[set[int]], asked: Asked) -> list[Panel]:
    sizes = [commit.study.batch_size or 1 for commit in workload.commits]
    planned = [budgets.planned_steps(commit) for commit in workload.commits]
    of_steps = list(asked.steps) or budgets.series(planned, MOST_BUDGETS)
    of_examples = budgets.series([own * size for own, size in zip(planned, sizes, strict=True)], MOST_BUDGETS)
    panels = []
    for title, noun, all_budgets, per_step in (
        ("budget of steps", "steps", of_steps, [1] * len(sizes)),
        ("budget of examples", "examples", of_examples, sizes),
    ):
        errors = [
            budgets.best_within(commit, metric, own, [budget / each for budget in all_budgets])
            for commit, own, each in zip(workload.commits, counted, per_step, strict=True)
        ]
        members = best.of(errors, [f"{budget:,} {noun}" for budget in all_budgets])
        if members:
            panels.append(best.panel(title, metric, members, ordered=True, stop=pages.stops_at(workload, metric)))
    return panels
