"""``forager demo``: a method where it visibly works."""

from pathlib import Path

from typer import Argument, Option

from .options import command, refused

_BYTES = ("bytes-down", "bytes-up", "bytes-select")
_MUCH = 1.2  # times as many bytes are worth a line


@command(
    ("forager demo", "list the demos"),
    ("forager demo ios", "run one: some seconds"),
    ("forager demo cosage --seed 3", "was it luck?"),
)
def demo(
    method: str | None = Argument(None, metavar="[METHOD]", help="Such as forager, cosage or ios."),
    seed: int = Option(0, help="Of both runs."),
    out: Path = Option(Path("runs"), help="Where the two run folders go."),
) -> None:
    """Run a method and its baseline on built-in data in which the difference can be seen."""
    from ..demos import DEMOS

    if method is None:
        for name, each in DEMOS.items():
            print(f"{name:<8}{each.about}")
        return
    if method not in DEMOS:
        raise refused(f"unknown demo {method!r}: there are {', '.join(DEMOS)}")
    from ...core.config.overrides import parse_overrides
    from ...server_app.run_folder import new_name
    from ..engine.local import run_local
    from ..flower.env import command_name
    from ..report.formatting import data_size, percent

    shown = DEMOS[method]
    print(f"{shown.about}\nTwo runs in this process, some seconds each.\n", flush=True)
    column, where = "accuracy", "on the server's test data"
    if shown.own:
        column, where = "clients-accuracy-mean", "on the clients' own data"
    stamp, folders, sent = new_name(), {}, {}
    width = max(len(method), len(shown.baseline) + len(" (baseline)"))
    for label, keys in (("without", shown.without), (method, shown.method)):
        name = f"demo-{method}-{label}-{stamp}".replace(f"-{method}-{method}", f"-{method}")
        overrides = parse_overrides([shown.config, keys, f"seed={seed}"])
        result = run_local({**overrides, "output-dir": str(out), "run-name": name})
        values = [row[column] for row in result.rounds if column in row]
        half = values[len(values) // 2]
        reached = f"{percent(half):>7} half-way, {percent(values[-1]):>7} at the end"
        sent[label] = sum(row.get(part, 0) for row in result.rounds for part in _BYTES)
        title = method if label == method else f"{shown.baseline} (baseline)"
        print(f"  {title:<{width}}  {reached} {where}; {data_size(sent[label])} sent", flush=True)
        folders[label] = result.folder
    ratio = sent[method] / max(1, sent["without"])
    if ratio > _MUCH:
        print(f"  {method} sends {ratio:.1f} times as many bytes as its baseline.")
    program = command_name()
    print(
        f"\nLook at {shown.look}\n"
        f"  {folders[method] / 'report.html'}\n"
        f"  {folders['without'] / 'report.html'}\n"
        f"Side by side: {program} watch --web {folders['without']} {folders[method]}\n"
        f'By Flower:    {program} run -c "{shown.method} {shown.config}"'
    )
