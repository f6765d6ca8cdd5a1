"""`rackyard plan`: where and how a job would run; nothing is submitted."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.common import emit, hint, output_option, plain, print_table, state_option

if TYPE_CHECKING:
    from rackyard.fabric import Site
    from rackyard.placement import Occupancy, Placement, Rejection, Request


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--site", type=click.Path(path_type=Path), help="Site file; default: the folder's site.")
@click.option(
    "--rank", type=click.IntRange(min=0), default=0, show_default=True, help="The rank whose environment is shown."
)
@click.option("--record", type=click.Path(path_type=Path), help="Write the decision, with all it rests on, to a file.")
@click.option("--again", is_flag=True, help="FILE is what --record wrote: decide again, and compare.")
@output_option
@state_option
def plan(file: Path, site: Path | None, rank: int, record: Path | None, again: bool, output: str, state: Path) -> None:
    """Show the placement, the rank map and the environment that FILE would get.

    Exit code 1 when it has no seat, 4 when the site's audit would keep it from starting there.
    """
    from rackyard.cli.findings import EXIT_FINDINGS, plain_finding
    from rackyard.cli.nodes import look
    from rackyard.cli.session import read_spec
    from rackyard.controller.nccl import audit
    from rackyard.controller.request import attempts_allowed, request_of
    from rackyard.errors import UsageError
    from rackyard.launch import Gang, build, check_script, refusals
    from rackyard.placement import Rejection, place
    from rackyard.placement.explain import explain

    if again and record is not None:
        raise UsageError("--again and --record together", why="--again reads a case, --record writes one")
    if again:
        _again(file, site, output, state)
        return
    spec, workdir = read_spec(file)
    try:
        check_script(str(spec["run"]), str(workdir))
    except UsageError as error:  # where the job goes can be asked on a laptop, too
        hint(f"{error.what} here, and without it the job would be refused: {error.where}")
    wanted = request_of(spec)
    if rank >= wanted.gpus:
        raise UsageError(f"there is no rank {rank}", why=f"the job's ranks are 0 to {wanted.gpus - 1}")
    ground, occupancy = look(site, state)
    answer = place(wanted, ground, occupancy)
    if record is not None:
        _record(record, wanted, ground, occupancy, answer)
    if isinstance(answer, Rejection):
        emit(output, plain(answer), lambda: click.echo("\n".join(explain(answer))))
        sys.exit(1)
    name = str(spec["name"])
    folder = state.absolute() / "jobs" / name
    gang = Gang(name, 1, attempts_allowed(spec), "rank 0's node", 0, None, str(folder / "nccl"))
    made = build(spec, answer, gang, str(workdir), folder)
    refused = refusals(audit(ground), ground, answer.nodes(), ())

    def table() -> None:
        click.echo("\n".join(explain(answer)))
        click.echo("")
        for finding in refused:
            click.echo(f"refused: {finding.rule}: {finding.subject}: {finding.summary}")
        if refused:
            click.echo("it would not start; repair that, or accept it: rackyard run --accept RULE\n")
        print_table(
            ["rank", "node", "local rank", "gpu", "nic", "rail", "segment"],
            [(s.rank, s.node, s.local_rank, s.gpu, s.nic, s.rail, s.segment) for s in answer.seats],
        )
        click.echo(f"\nwarm: {', '.join(made.warm) or 'nothing'}\nenvironment of rank {rank}:")
        for name, value in sorted({**made.env, **made.ranks[rank].env}.items()):
            click.echo(f"  {name}={value}")

    refused_data = [plain_finding(finding) for finding in refused]
    emit(output, {"placement": plain(answer), "plan": plain(made), "refused": refused_data}, table)
    if refused:
        sys.exit(EXIT_FINDINGS)


def _record(
    file: Path, wanted: "Request", ground: "Site", occupancy: "Occupancy", answer: "Placement | Rejection"
) -> None:
    import json

    from rackyard.cli.write import write_file
    from rackyard.placement.record import record

    write_file(file, json.dumps(record(wanted, ground, occupancy, answer), indent=1, ensure_ascii=False) + "\n")


def _again(file: Path, site: Path | None, output: str, state: Path) -> None:
    """Decide a recorded case again. Exit code 1 when the answer is another one."""
    import json

    from rackyard.cli.inputs import read_bytes
    from rackyard.cli.nodes import look
    from rackyard.errors import UsageError
    from rackyard.placement.explain import explain
    from rackyard.placement.record import again, answer_of

    try:
        case = json.loads(read_bytes(file))
    except ValueError as error:
        raise UsageError("this is no JSON", where=str(file), why=str(error)) from None
    if not isinstance(case, dict):
        raise UsageError("this is no placement case", where=str(file), fix="give a file that --record wrote")
    then, now = answer_of(case), again(case, look(site, state)[0])

    def table() -> None:
        click.echo("\n".join(explain(now)))
        same = "the same as when it was recorded" if now == then else "not the one that was recorded"
        click.echo(f"\nthe answer is {same}")

    emit(output, {"same": now == then, "answer": plain(now)}, table)
    if now != then:
        sys.exit(1)
