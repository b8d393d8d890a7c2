"""An overview of a store: descriptions of its studies, and their answers.

Both are read from envelopes. If a study does not have a valid envelope, it is built from the tables of the study.
"""

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from results import durable, store
from results.durable import Damaged, Folder
from results.located import in_snapshot
from results.plans.study import Target
from results.rules.answers import MINIMUM, Answer, Rule
from results.rules.descriptions import StudyDescription
from results.storage import envelope
from results.storage.commit_records import envelope_bytes
from results.storage.commits import MANIFEST, Commit, fetch_commits, list_study, newest_commit, read_table, retry
from results.storage.compaction import TABLES, Piece
from results.storage.envelope import Envelope

ENOUGH = 16 * 1024  # bytes of an envelope to read first; the minimum rule needs more only if there are many metrics
MOST_ENVELOPE = 64 << 20  # maximum bytes of an envelope; ours take 5 kB per study


class Overview(NamedTuple):
    """The studies in a store or a release.

    Attributes:
      folder: the store or release.
      descriptions: every visible study by name, sorted.
      envelopes: envelopes by study name.
      waiting: names of requested studies that are not visible yet.
      rule: rule that defines the answers.
    """

    folder: Folder
    descriptions: Mapping[str, StudyDescription]
    envelopes: Mapping[str, Envelope]
    waiting: Sequence[str]
    rule: Rule

    def answers(self, target: Target, names: Container[str]) -> dict[str, Answer]:
        """Returns the answers by study name. Studies that never reached the target are omitted."""
        return envelope.answers(self._named(names), target, self.rule)

    def lowest(self, metric: str, names: Container[str]) -> dict[str, float]:
        """Returns the lowest value of a metric over the trials that the rule counts, by study name."""
        return envelope.lowest(self._named(names), metric, self.rule)

    def _named(self, names: Container[str]) -> list[Envelope]:
        return [stored for name, stored in self.envelopes.items() if name in names]


@in_snapshot
def survey(folder: Folder, rule: Rule = MINIMUM) -> Overview:
    """Surveys all studies in a store or a release, for answers under ``rule``.

    Raises:
      BadInput: there is no store, its schema is newer, or it is damaged.
    """
    return retry(lambda: _survey(folder, rule))


def _survey(folder: Folder, rule: Rule) -> Overview:
    envelopes = {}
    waiting = []
    if folder.is_dir() and not (folder / MANIFEST).exists():
        names = sorted(name for name in _names(folder) if not name.startswith("."))
        fetch_commits(folder, names, "envelope")
        for name in names:
            if stored := _newest_envelope(folder, name, rule):
                envelopes[name] = stored
            elif commit := newest_commit(folder, name):
                envelopes[name] = _built_envelope(commit, rule)
            elif list_study(folder / name).plans:
                waiting.append(name)
    if not envelopes:  # a release, or an error that this call reports
        for commit in store.catalogue(folder):
            envelopes[commit.name] = _listed_envelope(commit, rule) or _built_envelope(commit, rule)
    return Overview(folder, {name: stored.description for name, stored in envelopes.items()}, envelopes, waiting, rule)


def _built_envelope(commit: Commit, rule: Rule) -> Envelope:
    """Builds the envelope of a study that does not have a valid one."""
    hashes = {table: commit.files[table].sha256 for table in envelope.HASHED}
    tables = Piece(*(read_table(commit, table) for table in TABLES))
    content, _ = envelope.build(commit.study, tables, hashes)
    built = envelope.parse(content, " ".join(hashes.values()).encode(), rule)
    if built is None:
        raise Damaged(f"{commit.name} cannot be described. Check everything with `python -m results verify`.")
    return built


def _newest_envelope(folder: Folder, name: str, rule: Rule) -> Envelope | None:
    """Returns the envelope of a study's newest commit. Does not parse the record, because answers may read hundreds."""
    newest = max((file for file in _names(folder, name) if file.startswith("commit-")), default=None)
    if newest is None:
        return None
    try:
        record = _content(folder, name, newest, durable.RECORD_BYTES)
        file = newest.replace("commit", "envelope").replace(".json", ".arrow")
        for size in (ENOUGH, MOST_ENVELOPE) if rule.first is None else (MOST_ENVELOPE,):
            parsed = envelope.parse(_content(folder, name, file, size), record, rule)
            if parsed and parsed.description.study == name:
                return parsed
    except (OSError, MemoryError):  # missing, not a regular file, or far too large
        pass
    return None


def _listed_envelope(commit: Commit, rule: Rule) -> Envelope | None:
    hashes = " ".join(file.sha256 for file in commit.files.values()).encode()
    try:
        return envelope.parse(envelope_bytes(commit.files["envelope"]), hashes, rule)
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
