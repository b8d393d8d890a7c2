"""Workloads of a store by their names in the paper of Shallue et al. 2018, and the curves that its figures show."""

import itertools
from collections.abc import Sequence

from analysis import workload_studies
from analysis.figures.paper_lines import PaperLine
from analysis.fitting import curve_fits
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.curves import TrialFilter
from analysis.trials import metaparameters
from analysis.workload_studies import WorkloadStudies
from results.durable import Folder
from results.rules.answers import MINIMUM, Rule

# The paper's names for workloads in studies by this software. Names from presets come first.
DATASETS = {"cifar_10": "cifar10"}
OPTIMIZERS = {"nesterov_momentum": "nesterov"}
MODELS = {"lstm": ("lstm_base",), "simple_cnn_base": ("simple_cnn_base", "simple_cnn_32_64_1024")}
FULLY_CONNECTED = ("fc_", "fully_connected_")
SPLITS = ("shallue2018_", "")  # before our names of data sets. Those with the paper's splits come first
ENDS = ("", "_remembered")  # behind our names of data sets, see workloads.appendix
FORMS = ("", "_5", "_untied", "_0.4_5", "_pre_activated", "_untied_bias")  # behind our names: options of models
LONGER = "solution_quality/"  # folder of longer trials, for workloads that also appear elsewhere


class PaperWorkloads:
    """Workloads of a store. If names collide, published workloads replace measured ones."""

    def __init__(self, workloads: Sequence[WorkloadStudies]):
        self._workloads: dict[tuple[str, str, str], WorkloadStudies] = {}
        self._curves: dict[object, CurveFits] = {}  # figures share curves
        for workload in sorted(workloads, key=lambda workload: (workload.recorded, _longest(workload))):
            names = workload[:3]
            if names in self._workloads and not workload.recorded:  # its trials are longer than those of the others
                names = (f"{LONGER}{workload.dataset}", *names[1:])
            self._workloads[names] = workload

    def find(self, line: PaperLine) -> WorkloadStudies | None:
        """Returns the workload of a line, if the store has it."""
        last = line.dataset.rpartition("/")[2]
        folder = LONGER if line.dataset.startswith(LONGER) else ""
        models = MODELS.get(line.model, (line.model, line.model.replace(*FULLY_CONNECTED)))
        optimizer = OPTIMIZERS.get(line.optimizer, line.optimizer)
        names = [line.workload]
        for split, end, form, model in itertools.product(SPLITS, ENDS, FORMS, models):
            names.append((f"{folder}{split}{DATASETS.get(last, last)}{end}", f"{model}{form}", optimizer))
        return next((self._workloads[name] for name in names if name in self._workloads), None)

    def curve(self, line: PaperLine) -> CurveFits:
        """Returns the curve of a line, whose workload the store must have."""
        workload = self.find(line)
        assert workload is not None, "the caller checks this"
        key = (line.workload, line.target, line.first, line.split)
        if key not in self._curves:
            self._curves[key] = curve_fits.of_workload(workload, line.target, rule(workload, line), trial_filter(line))
        return self._curves[key]


def of_store(folder: Folder) -> PaperWorkloads:
    """Reads the workloads of a store, by name."""
    return PaperWorkloads(workload_studies.of_store(folder))


def rule(workload: WorkloadStudies, line: PaperLine) -> Rule:
    """Returns the rule that determines which trials of a line count."""
    return Rule("released", line.first) if workload.recorded else MINIMUM


def trial_filter(line: PaperLine) -> TrialFilter | None:
    """Returns a filter that selects trials by the value of a metaparameter. A missing metaparameter counts as 0."""
    return metaparameters.near(*line.split) if line.split else None


def _longest(workload: WorkloadStudies) -> int:
    """Returns the largest example budget of any trial."""
    plans = [commit.plan for commit in workload.commits]
    return max(int(plan.get("budget_steps") or 0) * int(plan["batch_size"]) for plan in plans)
