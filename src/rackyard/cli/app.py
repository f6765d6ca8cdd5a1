"""The root command: lazy subcommands, one place where errors become messages and exit codes."""

import importlib
import io
import sys
from collections.abc import Sequence

import click

from rackyard import __version__
from rackyard.errors import RackyardError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("rackyard.cli.run", "Run a job and follow it to its end."),
    "submit": ("rackyard.cli.submit", "Hand a job to the controller and return."),
    "up": ("rackyard.cli.up", "Run the controller until it is stopped."),
    "ps": ("rackyard.cli.ps", "List jobs."),
    "status": ("rackyard.cli.status", "Show one job."),
    "logs": ("rackyard.cli.logs", "Show the logs of a job's ranks."),
    "events": ("rackyard.cli.events", "Show everything that happened to a job."),
    "attempts": ("rackyard.cli.attempts", "Show fault, advice, action and resumed step of each attempt."),
    "why": ("rackyard.cli.why", "Say why a job is where it is, and what to do."),
    "cancel": ("rackyard.cli.cancel", "End a job."),
    "plan": ("rackyard.cli.plan", "Show where and how a job would run; submit nothing."),
    "topo": ("rackyard.cli.topo", "Discover, check, label and export what the racks really are."),
    "nccl": ("rackyard.cli.nccl", "NCCL topology files: check, generate, predict."),
    "fault": ("rackyard.cli.fault", "Inject faults into a simulated site."),
    "kube": ("rackyard.cli.kube", "Gangs on a Kubernetes cluster."),
    "sched": ("rackyard.cli.sched", "Replay traces under several schedulers' rules; time decisions."),
    "nodes": ("rackyard.cli.nodes", "Show nodes and their use."),
    "racks": ("rackyard.cli.racks", "Show racks and their NVLink domains."),
    "ckpt": ("rackyard.cli.ckpt", "List and verify checkpoints."),
    "shape3d": ("rackyard.cli.shape3d", "Train, sample and measure the 3D-generation models."),
    "config": ("rackyard.cli.config", "The job file's schema."),
    "demo": ("rackyard.cli.demo", "One job through a tray fault and a rack fault, on simulated racks."),
}
"""Every command with its module (the command is the module's attribute of the same name) and its help line."""


WIDTH = 100
"""Columns of help texts, at most on a terminal and always elsewhere."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH})
@click.version_option(__version__, prog_name="rackyard")
def cli() -> None:
    """The yard master for NVL72 racks: place, launch, watch and recover GPU training."""


def _refused(error: OSError) -> RackyardError:
    import errno

    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    fix = "free space; `rackyard up` then goes on with the jobs where they were" if full else None
    where = str(error.filename) if error.filename else None
    return RackyardError("the system refused", where=where, why=error.strerror or str(error), fix=fix)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Exit codes: 0 ok, 1 failed, 2 usage, 3 not yet, 4 findings, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A sign that the terminal has not, or a file name that is no UTF-8, must not end a command in its middle.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(
            list(argv) if argv is not None else None,
            prog_name="rackyard",
            standalone_mode=False,
            # Piped output must not depend on the terminal it was typed in.
            terminal_width=None if sys.stdout.isatty() else WIDTH,
        )
    except RackyardError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader went away (`rackyard logs JOB | head`): nothing to say, and nobody to say it to.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        # What the commands do not expect themselves: a disk that is full, a folder that lost its permissions.
        click.echo(f"error: {_refused(error)}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
