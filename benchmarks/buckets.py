"""Is a store in a bucket fast? Times `scaling-limits status` for a thousand studies on SeaweedFS, an S3 server.

    make test-buckets
    .venv/bin/python benchmarks/buckets.py [--json FILE] [--smoke]

The first command installs the server. The benchmark starts it on this machine, with its data in a temporary folder.
Times include the start-up of Python.
"""

import statistics
import sys

from report import ROOT, BenchmarkReport, in_turn, open_report, seconds

sys.path.insert(0, str(ROOT))
from tests.buckets import proxy, servers, stores

STUDIES, SMOKE_STUDIES = 1000, 5
ROUNDS = 5
SECONDS, REQUESTS = 10.0, 2100


def main(report: BenchmarkReport) -> None:
    """Adds the time and the number of requests that the status of a store takes, in a folder and in a bucket."""
    count = SMOKE_STUDIES if report.smoke else STUDIES
    folder = stores.many(report.folder / "store", count)
    faults = proxy.Faults()
    with servers.seaweedfs() as server, proxy.before(server.address, faults) as running:
        url = stores.upload(folder, server, server.url)
        _status(url, server.through(running.address), count)
        report.add(f"requests per study of the status of {count} studies", faults.counts.total() / count, "")
        report.add("bound on requests / requests", REQUESTS / faults.counts.total(), "×", 1.0)
        work = {
            "a folder": lambda: seconds(lambda: _status(str(folder), server, count)),
            "a bucket": lambda: seconds(lambda: _status(url, server, count)),
        }
        times = in_turn(work, 1 if report.smoke else ROUNDS, "status")
    for name, durations in times.items():
        report.add(f"seconds of the status of {count} studies in {name}", statistics.median(durations), "s")
    report.add("bound on seconds / seconds in a bucket", SECONDS / statistics.median(times["a bucket"]), "×", 1.0)


def _status(store: str, server: servers.Server, count: int) -> None:
    done = stores.run(["sweeps.status", f"store={store}", "--csv"], server)
    if done.returncode or done.stdout.count(",done,") != count:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    with open_report(__doc__) as report:
        main(report)
