"""python -m sweeps.manifest …: writes one JobSet for each study of `python -m sweeps …`, to run it on Kubernetes.

The output is YAML for `kubectl apply -f -`. Words are those of a sweep (except `launcher`) and the following:

  topology=v6e:4x4       TPU slice of each study: v4, v5e, v5p, v6e or tpu7x, and its chips
  machine=TYPE           machine type of the hosts (default: the type that needs the fewest hosts)
  gpu=nvidia-h100-80gb gpus=8 hosts=2   GPUs instead of TPUs: label of the nodes, GPUs per host, hosts
  image=IMAGE            container image, built with the Dockerfile of this package
  store=gs://B/FOLDER    result store, which must be in a bucket
  queue=NAME             local queue of Kueue
  priority=NAME          priority class of the queue, or of pods if there is no queue
  spot=true              spot nodes of GKE
  placement=exclusive    exclusive (one node pool for each slice), any, or a topology level of Kueue
  account=NAME           service account of the pods (scaling-limits)
  secret=NAME            Secret whose entries are environment variables of the pods, such as keys of the store
  env.NAME=VALUE         environment variable
  selector.KEY=VALUE     label that nodes must have
  reservation=NAME       reservation of Compute Engine
  volume.NAME=SOURCE:PATH   PersistentVolumeClaim or folder of the node (/…), and its path in the pod
  privileged=true        privileged containers
  namespace=NAME         namespace
  name=NAME              prefix of the names of JobSets
  restarts=3             maximum number of restarts, not counting free restarts
  out=DIR                writes one file per JobSet instead of printing all

Preempted studies restart for free if they have taken a step. limits.study.max_hours limits the time of each study.
Manifests do not contain credentials. This command contacts neither the cluster nor the store.
"""

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import cli, printing
from results.bad_input import BadInput, number_of

if __name__ == "__main__":  # precedes the imports below, so that their errors are caught
    cli.run("sweeps.manifest")

import dataclasses
import re

from results import exit_codes
from results.bad_input import printable
from sweeps import help_text, overrides
from sweeps.manifests import jobset
from sweeps.manifests.machines import Machines, gpus, tpus
from sweeps.manifests.options import MAPS, Options

if TYPE_CHECKING:
    from sweeps.planning import Request

# Imports inside functions keep --help fast.
_OPTIONS = tuple(field.name for field in dataclasses.fields(Options) if field.name not in MAPS)
OWN = ("topology", "machine", "gpu", "gpus", "hosts", "slices", "reservation", "out", *_OPTIONS)
_EXAMPLES = ("task=digits_fc batch_size=1,16,256 topology=v5e:2x2 image=IMAGE store=gs://BUCKET/FOLDER -m",)
_ACCOUNT = {"s3": "AWS_REGION", "az": "AZURE_STORAGE_ACCOUNT_NAME"}  # variables that pods need to use a store
_OF_COMMANDS = re.compile(r"(launcher|limits\.sweep)\b")


@cli.guarded
def main(argv: list[str]) -> int:
    """Prints or writes the JobSets of a command line, and returns the exit code."""
    given, rest = overrides.split(argv, OWN, MAPS)
    line = help_text.read(rest, __doc__ or "", _EXAMPLES)
    if printing.is_data():
        raise BadInput("manifests are YAML. Leave out --csv and --json.")
    for word in line.overrides:
        if _OF_COMMANDS.match(word.lstrip("+~")):
            raise BadInput(f"{word} is for a single command, but each JobSet runs a command of its own. Leave it out.")
    store = _store(line.store)
    machines = _machines(given)
    options = _options(given, store, machines)
    from sweeps import planning
    from sweeps.configured_study import DATA, DEVICES
    from sweeps.launchers.launcher import check_over_hosts

    with tempfile.TemporaryDirectory() as folder:  # the store is not read
        absent = line._replace(store=str(Path(folder) / "absent"))
        request = planning.request(absent, absent=(DATA, DEVICES), written=False)
    if machines.hosts > 1:
        check_over_hosts(request.studies, request.settings)
    texts = _texts(request, store, machines, options)
    if "out" not in given:
        print("---\n".join(texts.values()), end="")  # without wrapping
    else:
        _write(Path(given["out"]), texts)
    return exit_codes.DONE


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Writes a file for each JobSet. Raises BadInput if the folder has other files that kubectl would apply too."""
    strangers = sorted(path.name for path in folder.glob("*.y*ml") if path.stem not in texts)
    if strangers:
        raise BadInput(
            f"out={folder} has {number_of(len(strangers), 'file')} of other manifests, such as {strangers[0]}, which "
            "kubectl would apply too. Delete them, or give another folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    printing.answer(
        f"{number_of(len(texts), 'manifest')} in {folder}; next: kubectl apply -f {shlex.quote(str(folder))}"
    )


def _store(store: str | None) -> str:
    if store is None or not re.fullmatch(r"(gs|s3|az)://[^/@?#\s]+(/[^@?#\s]*)?", store):
        given = "store= is missing" if store is None else f"pods cannot use store={store}"
        raise BadInput(f"{given}. Give a folder in a bucket, without credentials: gs://B/FOLDER, s3://… or az://…")
    return store


def _machines(given: dict[str, str]) -> Machines:
    if ("topology" in given) == ("gpu" in given):
        raise BadInput("give either topology=, such as v6e:4x4, or gpu= and gpus=, such as nvidia-h100-80gb and 8")
    if given.get("slices", "1") != "1":
        raise BadInput(f"slices={given['slices']}: a study runs on one slice. Give a larger topology=.")
    hosts = _count(given, "hosts")
    if "topology" in given:
        if "gpus" in given:
            raise BadInput("gpus= is for gpu=, not for topology=")
        return tpus(given["topology"], given.get("machine"), hosts)
    if "machine" in given:
        raise BadInput("machine= is for topology=, not for gpu=")
    if "gpus" not in given:
        raise BadInput("gpus= is missing. Give the number of GPUs of each host.")
    return gpus(given["gpu"], int(_count(given, "gpus") or 0), 1 if hosts is None else hosts)


def _options(given: dict[str, str], store: str, machines: Machines) -> Options:
    if "image" not in given:
        raise BadInput(
            "image= is missing. Give an image that was built with the Dockerfile, such as REGISTRY/NAME:TAG."
        )
    values: dict[str, Any] = {key: given[key] for key in _OPTIONS if key in given}
    for key in ("spot", "privileged"):
        if values.setdefault(key, "false") not in ("true", "false"):
            raise BadInput(f"{key}={values[key]} is not true or false")
        values[key] = values[key] == "true"
    if "restarts" in values:
        values["restarts"] = _count(given, "restarts")
    for key in MAPS:
        if key in given:
            raise BadInput(f"{key}={given[key]} needs a name. Write {key}.NAME={given[key]}.")
        values[key] = {word.partition(".")[2]: given[word] for word in sorted(given) if word.partition(".")[0] == key}
    if "reservation" in given:
        values["selector"]["cloud.google.com/reservation-name"] = given["reservation"]
    options = Options(**values)
    options.check()
    if options.name is not None:
        jobset.check_name(options.name)
    if taken := options.selector.keys() & machines.labels.keys():
        raise BadInput(f"selector.{min(taken)} is set by topology= or gpu=. Leave it out.")
    variable = _ACCOUNT.get(store.partition(":")[0])
    if variable and options.secret is None and variable not in options.env:
        raise BadInput(
            f"pods cannot use store={store} without an account. Give secret=NAME, a Secret with the variables of "
            f"docs/launch/buckets.md, or env.{variable}=… if a role gives access."
        )
    return options


def _count(given: dict[str, str], key: str) -> int | None:
    if key in given and not re.fullmatch("[0-9]{1,9}", given[key]):
        raise BadInput(f"{key}={given[key]} is not a whole number from 0 to 999999999")
    return int(given[key]) if key in given else None


def _texts(request: "Request", store: str, machines: Machines, options: Options) -> dict[str, str]:
    """Returns the YAML of each study's JobSet, by name."""
    import yaml

    from sweeps.launchers.launcher import devices_asked

    texts = {}
    seconds = request.settings.time_limit_seconds
    for study in request.studies:
        used = devices_asked({}, study, request.settings)
        if machines.hosts == 1 and used < machines.devices:
            printing.say(f"note: {study.name} uses {used} of {machines.devices} devices. Set shards= to use more.")
        made = jobset.jobset(study.name, request.words[study.name], store, machines, options, seconds)
        name = made["metadata"]["name"]
        if name in texts:
            raise BadInput(f"two studies have the name {name}. Write their manifests with different name=…")
        texts[name] = f"# {printable(study.name)}\n{yaml.safe_dump(made, sort_keys=False, width=1000)}"
    return texts
