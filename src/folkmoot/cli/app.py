"""The list of commands: owns their names and one-line summaries, and turns errors into exit statuses.

A command lives in `folkmoot/cli/NAME.py` as `app = typer.Typer(add_completion=False, rich_markup_mode="markdown")`
(one `@app.command()` for a plain command, several for a group), and is listed in `COMMANDS`. Its module is imported
when it runs and not before: `folkmoot --help` prints the summaries below and imports no command. Heavy imports of a
command belong inside its function. A command returns its exit status (or None for 0) and raises `Refusal` with a
text that says what to do.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from folkmoot.cli.error import Refusal
from folkmoot.kernel.errors import FolkmootError

__all__ = ["COMMANDS", "Command", "run"]


class Command:
    """One entry of the list: its name, the module that has its `app`, and what `--help` says of it."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        self.name = name
        self.module = module
        self.summary = summary


# In the order of `folkmoot --help`: what runs a node, what talks to one, what tests and measures.
COMMANDS: Final = (
    Command("serve", "folkmoot.cli.serve", "Run a node."),
    Command("cluster", "folkmoot.cli.cluster", "Run a cluster of several nodes on this machine."),
    Command("config", "folkmoot.cli.config", "Check a configuration file, or explain its fields."),
    Command("status", "folkmoot.cli.status", "Show the nodes of a cluster and how its data is."),
    Command("partitions", "folkmoot.cli.partitions", "List who leads, follows and fills each partition."),
    Command("where", "folkmoot.cli.where", "Say which nodes have a client's session or a topic."),
    Command("safe-to-stop", "folkmoot.cli.safe", "Say whether a node can be stopped now (exit status)."),
    Command("heals", "folkmoot.cli.heals", "List what was merged after splits of the network."),
    Command("leave", "folkmoot.cli.leave", "Have a node hand over what it has and leave for good."),
    Command("evict", "folkmoot.cli.evict", "Put a node out of the cluster now."),
    Command("forget", "folkmoot.cli.forget", "Expect a node that is away no more."),
    Command("table", "folkmoot.cli.table", "Print sessions, subscriptions, queues, ... of the whole cluster."),
    Command("stream", "folkmoot.cli.stream", "List the streams of a node, or read one."),
    Command("pipeline", "folkmoot.cli.pipeline", "Run, check or look at a pipeline of Spark."),
    Command("transactions", "folkmoot.cli.transactions", "List the apps that publish by transactions."),
    Command("report", "folkmoot.cli.ready", "Report on availability or the fleet, from the events, with Spark."),
    Command("pub", "folkmoot.cli.pub", "Publish messages."),
    Command("sub", "folkmoot.cli.sub", "Subscribe and print what comes."),
    Command("passwd", "folkmoot.cli.passwd", "Add, change or remove a user in a password file."),
    Command("simulate", "folkmoot.cli.simulate", "Simulate a node with faults, and check every promise."),
    Command("bench", "folkmoot.cli.bench", "Put load on a broker and measure it."),
)


class LazyCommand(TyperCommand):
    """A command that is known by its summary until it runs."""

    def __init__(self, entry: Command) -> None:
        super().__init__(name=entry.name, help=entry.summary)
        self.entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and let it parse `args`; the context that comes back belongs to the real command."""
        module = importlib.import_module(self.entry.module)
        real = typer.main.get_command(module.app)
        if not real.help:
            real.help = self.entry.summary
        return real.make_context(info_name, args, parent=parent, **extra)


def build() -> TyperGroup:
    """The root command with every entry of `COMMANDS` in it."""
    app = typer.Typer(
        name="folkmoot",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        result_callback=finish,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for entry in COMMANDS:
        group.add_command(LazyCommand(entry))
    return group


def print_version(wanted: bool) -> None:
    """Answer `--version` and stop."""
    if wanted:
        from folkmoot.cli.version import version_line

        typer.echo(version_line())
        raise typer.Exit


def root(
    version: bool = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Say version, Python, compiled or pure."
    ),
) -> None:
    """An MQTT broker made of equal nodes, with streams that Spark can read again."""


def finish(result: object, **_parameters: object) -> None:
    """Make the integer that a command returned the exit status."""
    if isinstance(result, int):
        raise typer.Exit(result)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status; a `FolkmootError` is one line on stderr and no traceback."""
    try:
        build().main(args=list(arguments), prog_name="folkmoot")
    except FolkmootError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status if isinstance(error, Refusal) else 2
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
