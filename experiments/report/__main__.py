"""The command `experiments/report/build`."""

import argparse
import sys
from pathlib import Path

from . import kept, results, runs

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "results"
MEASURED = ROOT / "target" / "bench" / "results.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(prog="experiments/report/build",
                                     description="Turns results of `shunt bench run` into a page with plots.")
    parser.add_argument("results", type=Path, nargs="*", metavar="RESULTS",
                        help="what `shunt bench run` wrote (.jsonl), or a run that was kept (.json); several make one report, and of a "
                             "scenario that was run again the last run counts. Without it: what `make bench` wrote, or else the "
                             "latest run of docs/results")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--out", type=Path, metavar="DIR", help="where index.html, plots and a copy of the results go; "
                                                               "target/report without it")
    place.add_argument("--keep", action="store_true", help="keep claims, medians and intervals as a file of docs/results, by the run's "
                                                           "date, and write the page there anew")
    options = parser.parse_args()
    try:
        run = results.join([_read(path) for path in options.results or [_default()]])
        print(runs.keep(run, KEPT) if options.keep else runs.write(run, options.out or ROOT / "target" / "report"))
    except (results.BadResults, runs.Refused) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"experiments/report/build: {error}", file=sys.stderr)
        return 1
    return 0


def _default() -> Path:
    found = MEASURED if MEASURED.exists() else runs.latest(KEPT)
    if found is None:
        raise runs.Refused("there are no results yet; measure with `make bench`, or name a file")
    return found


def _read(path: Path) -> results.Results:
    return (kept.read if path.suffix == ".json" else results.read)(path)


if __name__ == "__main__":
    sys.exit(main())
