"""The options of manifests: image, queue, pods and nodes of the JobSets of a sweep, and their checks."""

import dataclasses
import re
from collections.abc import Mapping

from results.bad_input import BadInput

EXCLUSIVE = "exclusive"
ANYWHERE = "any"
_PART = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = rf"{_PART}(\.{_PART})*"
_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
# Images are named as in github.com/distribution/reference.
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]+)?"
_PATH = "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*"
_TAG = ":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_SECRET = re.compile("SECRET|PASSWORD|TOKEN|(ACCESS|ACCOUNT|API)_KEY", re.IGNORECASE)


Rule = tuple[str, str]  # pattern of a value, and its description for errors
LABEL = (
    "[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
    "a name: use at most 63 of a-z, 0-9 and -, and start with a letter",
)  # DNS-1035
_PLAIN = _PART, "a name: use at most 63 of a-z, 0-9 and -"
_NAME = f"(?=.{{1,253}}$){_DOMAIN}", "a name: use at most 253 of a-z, 0-9, - and single dots"
_VALUE = _WORD, "a value of a label: use at most 63 letters, digits, -, _ and ."
_IMAGE = f"(?=.{{1,255}}$)({_HOST}/)?{_PATH}(/{_PATH})*({_TAG})?(@sha256:[0-9a-f]{{64}})?"
_RULES: Mapping[str, Rule] = {
    "image": (_IMAGE, "the name of an image, such as REGISTRY/scaling-limits:TAG"),
    "queue": LABEL,
    "namespace": _PLAIN,
    "priority": _NAME,
    "account": _NAME,
    "secret": _NAME,
}
MAPS: Mapping[str, tuple[Rule, Rule]] = {  # rules for the keys of options such as env.NAME=VALUE, and for their values
    "env": (("[A-Za-z_][A-Za-z0-9_]*", "a name of a variable"), ("(?s).*", "a text")),
    "selector": ((f"({_DOMAIN}/)?{_WORD}", "a label of nodes, such as example.com/rack"), _VALUE),
    "volume": (
        (f"(?!shm$){_PART}", "a name of a volume: use at most 63 of a-z, 0-9 and -"),
        (f"(/[^:]+|{_DOMAIN}):(?!/dev/shm$)/[^:]+", "a volume: write CLAIM:/PATH or /FOLDER:/PATH"),
    ),
}


def check(key: str, value: str | None, rule: Rule) -> None:
    """Raises BadInput if the value of an option does not match its rule. None is valid."""
    if value is not None and not re.fullmatch(rule[0], value):
        raise BadInput(f"{key}={value} is not {rule[1]}")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of all manifests of a sweep.

    Attributes:
      image: container image that contains the console script.
      queue: local queue of Kueue, if Kueue is used.
      priority: a WorkloadPriorityClass of Kueue if there is a queue, otherwise a PriorityClass of Kubernetes.
      spot: whether to use spot nodes of GKE.
      placement: ``exclusive`` (one node pool for each slice), ``any``, or a node label that is a topology level of
        Kueue. The default is exclusive for TPU slices with several hosts.
      account: service account of the pods, which can access the store.
      namespace: namespace. By default, the current namespace.
      name: prefix of the names of JobSets. By default, the name of the workload.
      restarts: maximum number of restarts, excluding free restarts.
      secret: Secret of Kubernetes whose entries are environment variables of the pods.
      privileged: whether containers are privileged.
      env: environment variables.
      selector: additional labels of the nodes.
      volume: additional volumes by name, as SOURCE:PATH. A source is a folder of the node or a PersistentVolumeClaim.
    """

    image: str
    queue: str | None = None
    priority: str | None = None
    spot: bool = False
    placement: str | None = None
    account: str = "scaling-limits"
    namespace: str | None = None
    name: str | None = None
    restarts: int = 3
    secret: str | None = None
    privileged: bool = False
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    volume: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raises BadInput for invalid options."""
        for key, rule in _RULES.items():
            check(key, getattr(self, key), rule)
        if self.queue is not None:
            check("priority", self.priority, _VALUE)
        for option, (key_rule, value_rule) in MAPS.items():
            for key, value in getattr(self, option).items():
                check(option, key, key_rule)
                check(f"{option}.{key}", value, value_rule)
        if secret := next(filter(_SECRET.search, self.env), None):
            raise BadInput(f"env.{secret} may be a credential, which does not belong in a manifest. Use secret=NAME.")
        if self.placement not in (None, EXCLUSIVE, ANYWHERE):
            if not re.fullmatch(f"{_DOMAIN}/{_WORD}", self.placement or ""):
                raise BadInput(
                    f"placement={self.placement} must be {EXCLUSIVE}, {ANYWHERE} or a label such as example.com/rack"
                )
            if self.queue is None:
                raise BadInput(f"placement={self.placement} is a topology level of Kueue. Set queue= too.")
