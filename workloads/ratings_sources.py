"""The registry of ratings: a dict that maps the names used in YAML files to sources of ratings."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from workloads.datasets import movielens, rating_files, web_graph, webgraph_synthetic
from workloads.factorization.ratings import RatingsSource
from workloads.workload import Names

Fields = Mapping[str, Any]

# Sources of ratings, as functions of their options.
RATINGS: dict[str, Callable[..., RatingsSource]] = {
    "webgraph_synthetic": webgraph_synthetic.source,
    "web_graph": web_graph.source,
    "movielens": movielens.source,
    "ratings": rating_files.source,
}
# Dataclasses with all parameters of generated ratings, which are part of a study's plan.
GENERATED: dict[str, Callable[..., Any]] = {"webgraph_synthetic": webgraph_synthetic.WebGraph}


def options(name: str) -> Names:
    """Returns the names of the options of ratings that a task may set."""
    return tuple(inspect.signature(GENERATED.get(name, RATINGS[name])).parameters)


def source(choice: Fields) -> RatingsSource:
    """Returns a source of ratings.

    Args:
      choice: dict with ``name``, a key of RATINGS, and options.
    """
    fields = dict(choice)
    return RATINGS[fields.pop("name")](**fields)


def generated_from(choice: Fields) -> dict[str, float]:
    """Returns all parameters of generated ratings, or an empty dict for ratings that are not generated."""
    fields = dict(choice)
    name = fields.pop("name")
    return dataclasses.asdict(GENERATED[name](**fields)) if name in GENERATED else {}
