"""``forager donors``: whose models or data would help each client of a run."""

from pathlib import Path

from typer import Option

from .options import RunArgument, RunsOption, TrustOption, command, run_folder


@command(
    ("forager donors", "the newest run that compared its clients"),
    ("forager donors runs/mine --of 3", "all donors of one client"),
)
def donors(
    run: RunArgument = "latest",
    of: str = Option("", help="The client whose donors are all shown."),
    runs: RunsOption = Path("runs"),
    trust: TrustOption = False,
) -> None:
    """Rank the donors of each client by the similarities that a run has found (IOS).

    In simulation, where the clients' data can be loaded again, the ranking is compared with their
    labels and with KNN-Shapley; this is added to the events and the report.
    """
    from ...server_app.run_folder import RunFolder
    from ..donor_ranking import donors_table, rank_donors
    from ..report import write_report
    from ..trust import find_own_modules

    folder = RunFolder.open(run_folder(run, runs))
    if trust:
        find_own_modules()
    found = rank_donors(folder, trust=trust)
    table = donors_table(found, of)
    print(table.text())
    if not found.scores:
        print("\nThe data of these clients cannot be loaded here: nothing to compare with.")
        return
    print()
    for name, value in found.scores.items():
        print(f"{name}: {value:.3f}")
    event = found.event().to_dict()
    if not any(all(event[key] == old.get(key) for key in event) for old in folder.read_events()):
        folder.append_event(event)
    write_report(folder)
