"""The list of commands: their names and one-line summaries; turns errors into exit statuses.

A command is a `click.command()` or a `click.group()` in `folkmoot/cli/NAME.py` and is listed in `COMMANDS`. Its module
is imported only when it runs: `folkmoot --help` prints the summaries below and imports no command. Heavy imports of a
command belong inside its function. A command returns its exit status (or None for 0) and raises `Refusal` with a text
that says what to do. `EXTRAS` lists the packages that only some commands need, with the extra that installs each.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from folkmoot.cli.error import Refusal
from folkmoot.kernel.errors import FolkmootError

__all__ = ["COMMANDS", "EXTRAS", "Command", "build", "run"]


class Command:
    """One entry of the list: the name, the place ("module:attribute"), and the summary for `--help`."""

    def __init__(self, name: str, place: str, summary: str) -> None:
        self.name = name
        self.module, _, self.attribute = place.partition(":")
        self.summary = summary

    def load(self) -> click.Command:
        """Import the command; raises Refusal naming the extra to install if a package of an extra is missing."""
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise
            package, extra = EXTRAS[missing]
            raise Refusal(f"folkmoot {self.name} needs {package}: pip install 'folkmoot[{extra}]'") from None
        found = getattr(module, self.attribute)
        assert isinstance(found, click.Command)
        return found


INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells report a process that SIGINT has ended."""

# Imports of commands that a node does not need: the module, its package, and the extra of Folkmoot that installs it.
EXTRAS: Final = {"paho": ("paho-mqtt", "tools")}


# In the order of `folkmoot --help`: running nodes, talking to nodes, testing and measuring.
COMMANDS: Final = (
    Command("serve", "folkmoot.cli.serve:serve", "Run a node."),
    Command("cluster", "folkmoot.cli.cluster:cluster", "Run a cluster of several nodes on this machine."),
    Command("config", "folkmoot.cli.config:config", "Check a configuration file, or explain its fields."),
    Command("status", "folkmoot.cli.status:status", "Show the nodes of a cluster and the state of its data."),
    Command(
        "partitions", "folkmoot.cli.partitions:partitions", "List the leader, followers and learners of partitions."
    ),
    Command("where", "folkmoot.cli.where:where", "Show which nodes have a client's session or a topic."),
    Command("safe-to-stop", "folkmoot.cli.safe:safe_to_stop", "Check whether a node can be stopped now (exit status)."),
    Command("heals", "folkmoot.cli.heals:heals", "List what was merged after network splits."),
    Command("leave", "folkmoot.cli.leave:leave", "Make a node hand over its partitions and leave for good."),
    Command("evict", "folkmoot.cli.evict:evict", "Put a node out until it is started again."),
    Command("forget", "folkmoot.cli.forget:forget", "Forget an absent node that will not come back."),
    Command("table", "folkmoot.cli.table:table", "Print a table of the cluster: sessions, queues, ..."),
    Command("stream", "folkmoot.cli.stream:stream", "List the streams of a node, or read one."),
    Command("pipeline", "folkmoot.cli.pipeline:pipeline", "Run, check or inspect a Spark pipeline."),
    Command("transactions", "folkmoot.cli.transactions:transactions", "List the apps that publish with transactions."),
    Command("report", "folkmoot.cli.ready:report", "Report on availability or the fleet, with Spark."),
    Command("pub", "folkmoot.cli.pub:pub", "Publish messages."),
    Command("sub", "folkmoot.cli.sub:sub", "Subscribe and print messages."),
    Command("passwd", "folkmoot.cli.passwd:passwd", "Add, change or remove a user in a password file."),
    Command("simulate", "folkmoot.cli.simulate:simulate", "Simulate nodes with faults, and check every promise."),
    Command("bench", "folkmoot.cli.bench:bench", "Put load on a broker and measure it."),
)


class LazyCommand(click.Command):
    """A command that is not imported until it runs; until then only its summary is known."""

    def __init__(self, entry: Command) -> None:
        super().__init__(name=entry.name, help=entry.summary)
        self.entry = entry

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Import the command and let it parse `args`; the returned context belongs to the imported command."""
        real = self.entry.load()
        if not real.help:
            real.help = self.entry.summary
        return real.make_context(info_name, args, parent=parent, **extra)


def build() -> click.Group:
    """Return the root command with every entry of `COMMANDS`."""
    group = Root(
        name="folkmoot",
        help="An MQTT broker made of equal nodes, with stored streams that Spark can read.",
        params=[VERSION],
        no_args_is_help=True,
        result_callback=finish,
        context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    )
    for entry in COMMANDS:
        group.add_command(LazyCommand(entry))
    return group


class Root(click.Group):
    """The group of all commands: `--help` lists them in the order of `COMMANDS`."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)

    def invoke(self, context: click.Context) -> Any:
        """Run a command; Ctrl-C ends it with status 130, where click itself would say "Aborted!" and exit with 1."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            context.exit(INTERRUPTED)


def print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the version line and exit."""
    if wanted:
        from folkmoot.cli.version import version_line

        click.echo(version_line())
        context.exit()


VERSION: Final = click.Option(
    ["--version"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Print the version, the Python version, and whether it is compiled.",
)


def finish(result: object, **_parameters: object) -> None:
    """Exit with the integer that a command returned."""
    if isinstance(result, int):
        click.get_current_context().exit(result)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status; print a `FolkmootError` as one line without a traceback."""
    try:
        build().main(args=list(arguments), prog_name="folkmoot")
    except FolkmootError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status if isinstance(error, Refusal) else 2
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
