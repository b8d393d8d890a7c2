"""An overview of a store: descriptions of its studies, and their answers.

Both are read from envelopes. If a study does not have a valid envelope, its tables are read and its measurements
scanned.
"""

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from results import durable, store
from results.catalog import scan
from results.durable import Damaged, Folder
from results.located import in_snapshot
from results.plans.study import Target
from results.rules.answers import MINIMUM, Answer, Rule
from results.rules.descriptions import StudyDescription, of_study
from results.storage import envelope
from results.storage.commits import MANIFEST, Commit, fetch_commits, list_study, newest_commit, read_table, retry
from results.storage.envelope import Envelope

ENOUGH = 16 * 1024  # bytes of an envelope to read first; the minimum rule needs more only if there are many metrics
MOST_ENVELOPE = 64 << 20  # maximum bytes of an envelope; ours take 5 kB per study


class Overview(NamedTuple):
    """The studies in a store or a release.

    Attributes:
      folder: the store or release.
      descriptions: every visible study by name, sorted.
      envelopes: valid envelopes, by study name.
      commits: commits of studies without a valid envelope, by study name.
      waiting: names of requested studies that are not visible yet.
      rule: rule that defines the answers.
    """

    folder: Folder
    descriptions: Mapping[str, StudyDescription]
    envelopes: Mapping[str, Envelope]
    commits: Mapping[str, Commit]
    waiting: Sequence[str]
    rule: Rule

    def answers(self, target: Target, names: Container[str]) -> dict[str, Answer]:
        """Returns the answers by study name. Studies that never reached the target are omitted."""
        enveloped, others = self._split(names)
        by_name = envelope.answers(enveloped, target, self.rule)
        by_name |= scan.find_answers(others, target, self.rule)
        return by_name

    def lowest(self, metric: str, names: Container[str]) -> dict[str, float]:
        """Returns the lowest value of a metric over the trials that the rule counts, by study name."""
        enveloped, others = self._split(names)
        by_name = envelope.lowest(enveloped, metric, self.rule)
        by_name |= scan.lowest(others, metric, self.rule)
        return by_name

    def _split(self, names: Container[str]) -> tuple[list[Envelope], list[Commit]]:
        """Returns the envelopes of the named studies that have a valid one, and the commits of the others."""
        enveloped = [each for name, each in self.envelopes.items() if name in names]
        return enveloped, [commit for name, commit in self.commits.items() if name in names]


@in_snapshot
def survey(folder: Folder, rule: Rule = MINIMUM) -> Overview:
    """Surveys all studies in a store or a release, for answers under ``rule``.

    Raises:
      BadInput: there is no store, its schema is newer, or it is damaged.
    """
    try:
        return retry(lambda: _survey(folder, rule))
    except FileNotFoundError as error:
        raise Damaged(
            f"{error.filename or error} is missing. Check everything with `python -m results verify`."
        ) from None


def _survey(folder: Folder, rule: Rule) -> Overview:
    studies = {}
    waiting = []
    if folder.is_dir() and not (folder / MANIFEST).exists():
        names = sorted(name for name in _names(folder) if not name.startswith("."))
        fetch_commits(folder, names, "envelope")
        for name in names:
            each = _newest_envelope(folder, name, rule) or newest_commit(folder, name)
            if each:
                studies[name] = each
            elif list_study(folder / name).plans:
                waiting.append(name)
    if not studies:  # a release, or an error that this call reports
        studies = {commit.name: _listed_envelope(commit, rule) or commit for commit in store.catalogue(folder)}
    return Overview(
        folder,
        {name: each.description if isinstance(each, Envelope) else _describe(each) for name, each in studies.items()},
        {name: each for name, each in studies.items() if isinstance(each, Envelope)},
        {name: each for name, each in studies.items() if isinstance(each, Commit)},
        waiting,
        rule,
    )


def _describe(commit: Commit) -> StudyDescription:
    studies, trials = read_table(commit, "studies"), read_table(commit, "trials")
    return of_study(commit.study, studies, trials, commit.metrics, commit.files["measurements"].rows)


def _newest_envelope(folder: Folder, name: str, rule: Rule) -> Envelope | None:
    """Returns the envelope of a study's newest commit. Does not parse the record, because answers may read hundreds."""
    newest = max((file for file in _names(folder, name) if file.startswith("commit-")), default=None)
    if newest is None:
        return None
    try:
        record = _content(folder, name, newest, durable.RECORD_BYTES)
        file = newest.replace("commit", "envelope").replace(".json", ".arrow")
        for most in (ENOUGH, MOST_ENVELOPE) if rule.first is None else (MOST_ENVELOPE,):
            parsed = envelope.parse(_content(folder, name, file, most), record, rule)
            if parsed and parsed.description.study == name:
                return parsed
    except (OSError, MemoryError):  # missing, not a regular file, or far too large
        pass
    return None


def _listed_envelope(commit: Commit, rule: Rule) -> Envelope | None:
    hashes = " ".join(file.sha256 for file in commit.files.values()).encode()
    try:
        file = commit.files["envelope"]
        data = file.shared.content(file.start, file.bytes) if file.shared else durable.read(file.path)
        return envelope.parse(data, hashes, rule)
    except (KeyError, FileNotFoundError, Damaged):
        return None


def _names(folder: Folder, name: str = "") -> list[str]:
    """Returns the names in a folder of the store, or an empty list if the path is a file."""
    files = durable.system(folder)
    try:
        return files.names(files.within(folder, name))
    except NotADirectoryError:
        return []


def _content(folder: Folder, name: str, file: str, most: int) -> bytes:
    """Returns the content of a file, or its first ``most`` bytes."""
    files = durable.system(folder)
    return files.read(files.within(folder, name, file), most)
