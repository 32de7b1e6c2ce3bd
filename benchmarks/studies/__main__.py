"""Do the runs of the studies, and make their pages: ``python -m forager.benchmarks.studies``.

``status`` says which runs the records hold. ``run [PAPER]`` does those that are missing; ``rerun
[PAPER]`` does all of them again, beside the records, and replaces the records once it is complete.
``--cells PATTERN`` does a part: ``rerun auxo --cells ': auxo$'`` is for what a change touches.
Both continue where they were stopped. ``pages`` makes the pages of docs/results from the records.
"""

import argparse
import re
import sys
from collections.abc import Sequence

from ...tools.experiments.records import SweepError
from .catalogue import PAPERS, studies
from .study import Study


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 if a run failed."""
    parser = argparse.ArgumentParser(
        prog="python -m forager.benchmarks.studies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["status", "run", "rerun", "pages"])
    parser.add_argument("paper", nargs="?", default="", help=f"one of {', '.join(PAPERS)}")
    parser.add_argument("--study", help="only the study of this name")
    parser.add_argument("--cells", default="", help="only cells that match, for run and rerun")
    parser.add_argument("--processes", type=int, help="runs at the same time; all cores by default")
    options = parser.parse_args(arguments)
    try:
        chosen = [s for s in studies(options.paper) if options.study in (None, s.name)]
        return _do(options.what, chosen, options.processes, options.cells)
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr)
        return 130


def _do(what: str, chosen: Sequence[Study], processes: int | None, cells: str) -> int:
    if what == "status":
        for study in chosen:
            print(f"{study.name:24} {study.wanted - study.missing():5} of {study.wanted} runs")
        return 0
    if what == "pages":
        from .pages import write_pages

        for path in write_pages():
            print(path)
        return 0
    some = [s for s in chosen if any(re.search(cells, cell.name) for cell in s.cells)]
    failures = [s.run(processes, anew=what == "rerun", like=cells) for s in some]
    return 1 if any(failures) else 0


if __name__ == "__main__":
    sys.exit(main())
