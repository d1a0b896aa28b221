"""The command `experiments/report/build`."""

import argparse
import sys
from pathlib import Path

from . import readme, results, runs

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="experiments/report/build", description="Turns a results file of `shunt bench run` into a report.")
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS.jsonl",
                        help="what `shunt bench run` wrote; several runs make one report, and of a scenario that was run again the last run counts")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--out", type=Path, metavar="DIR", help="where index.html, plots and a copy of the results go; "
                                                               "target/report without it")
    place.add_argument("--keep", action="store_true", help="put the report under docs/results, by its date, and list it there")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="write the table of claims into this file too, between "
                                                                    f"{readme.BEGIN} and {readme.END}")
    options = parser.parse_args()
    try:
        run = results.read_all(options.results)
        page = runs.keep(run, KEPT) if options.keep else runs.write(run, options.out or ROOT / "target" / "report")
        print(page)
        if options.readme:
            changed = readme.update(options.readme, run, page if options.keep else None)
            print(f"{options.readme}: {'written' if changed else 'the table was up to date'}")
    except (results.BadResults, readme.NoMarkers, runs.Refused) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"experiments/report/build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
