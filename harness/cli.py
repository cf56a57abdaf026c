"""The command line; each command is a file in a folder of commands, imported when it is typed."""

from __future__ import annotations

import errno
import gc
import importlib
import itertools
import keyword
import os
import signal
import sys
import traceback
from typing import Any, NoReturn

import click

from harness.core.errors import HarnessError, UsageError, find_similar_names
from harness.core.files import explain_not_utf8, require_utf8
from harness.core.provenance import find_version, hold_collector, shorten_exit
from harness.core.terminal import clean_output

COMMANDS = {
    "run": "Evaluate models on suites and record the scores.",
    "train": "Make a model of a backbone with a recipe.",
    "status": "Show what runs where, what waits, what failed, the cost and the time left.",
    "list": "List models, suites, tasks, and what has been measured.",
    "show": "Show what has been measured of a model.",
    "explain": "Show which tokens of a document the tokens of a query match.",
    "check": "Say whether a candidate is as good as a baseline: a gate for checkpoints.",
    "baseline": "Set, list and show what candidates are compared with.",
    "compare": "Compare two models: score deltas, and the differences in how they were measured.",
    "papers": "Compare a model's scores with those that papers print for a suite.",
    "watch": "Evaluate each new checkpoint of a pretraining run, and draw the curve.",
    "fit": "Fit scaling laws to a table of runs, and plan a budget.",
    "proxy": "Choose a few tasks that predict a benchmark's mean, and show such proxies.",
    "recipes": "Show every setting of a recipe with its source.",
    "models": "List, show, remove, export and publish the models that recipes have trained.",
    "data": "Show, mirror, verify and check the data that suites need.",
    "serve": "Open the leaderboard as a web site, or write it as plain files.",
    "import": "Take over scores that others published.",
    "export": "Write a page of the leaderboard as data, runs for trec_eval, or scores for mteb.",
    "remote": "Fetch records from object storage that machines share, and send them there.",
    "cache": "Show and prune the cache.",
    "audit": "Compare results and caches with what was written, and repair them.",
    "doctor": "Check this machine: versions, devices, folders, and what is missing.",
}

SITE = ("papers", "serve", "import", "export")
"""The commands of the web site, in leaderboard/commands/; the others are in harness/commands/."""

REMOVED = {
    "push": "Share records by `harness remote push URL` and `harness serve --remote URL`, or in a git "
    "repository (docs/ci.md).",
    "token": "The site only reads, so it needs no tokens. Records from CI: docs/ci.md.",
}
"""What to type in place of commands of earlier versions."""

REMOVED_OPTIONS = {
    "--allow-extra": "--allow tensors=PATTERN leaves out tensors that have no place in a model.",
    "--allow-differences": "--allow FIELD lets a field differ.",
}
"""What to type in place of options of earlier versions."""

_MODEL, _RESULTS = "--model MODEL", "--results FOLDER"
_SETTINGS = ("epochs", "learning-rate", "max-steps", "temperature", "warmup-ratio", "weight-decay")
_HINTS = {
    **dict.fromkeys(
        ("-m", "--model", "--models", "--model-name", "--model-name-or-path", "--model-path"), _MODEL
    ),
    **dict.fromkeys(("-t", "--task", "--task-name", "--task-names"), "--tasks TASK,TASK"),
    **dict.fromkeys(("--task-type", "--task-types"), "--tasks type:TYPE, e.g. type:STS"),
    **dict.fromkeys(("-b", "--benchmark", "--benchmarks", "--suites"), "--suite SUITE"),
    **dict.fromkeys(("-o", "--output-dir", "--output-folder", "--output-path", "--output"), _RESULTS),
    **dict.fromkeys(
        ("--batch-size", "--per-device-eval-batch-size"),
        "--batch-tokens NUMBER, which counts tokens and not texts",
    ),
    "--per-device-train-batch-size": "--set batch_size=NUMBER",
    "--num-train-epochs": "--set epochs=NUMBER",
    **{f"--{name}": f"--set {name.replace('-', '_')}=VALUE" for name in _SETTINGS},
    **dict.fromkeys(("--max-seq-length", "--max-seq-len"), "--max-length TOKENS"),
    **dict.fromkeys(("--device", "--gpus"), "--devices DEVICE"),
    **dict.fromkeys(("--eval-splits", "--split"), "--splits SPLIT"),
    **dict.fromkeys(("--fp16", "--bf16"), "--dtype float16 or --dtype bfloat16"),
    **dict.fromkeys(("--max-samples", "--max-eval-samples", "--num-samples"), "--limit NUMBER"),
    # It named the project of a code:FOLDER suite; some commands have a --name of their own.
    "--name": "--project NAME for the project of a code:FOLDER suite, or --model NAME=MODEL",
    **dict.fromkeys(("--threshold", "--tolerance"), "--margin POINTS"),
    **dict.fromkeys(("--wandb", "--report-to"), "--track TRACKER, e.g. wandb"),
    "--limit": "--rows N",
    "--revision": "--model ORG/NAME@REVISION",
    "--overwrite": "--force",
}
"""What to type in place of options of other programs, or of another command."""

_TRAINING_HINTS = {
    "--batch-size": "--set batch_size=NUMBER",
    "--limit": "--set max_steps=NUMBER",
    "--fp16": "--set precision=float16",
    "--bf16": "--set precision=bfloat16",
}
"""The same where a command only trains."""


_GUESSES = {
    **dict.fromkeys(("evaluate", "eval"), "run"),
    **dict.fromkeys(("finetune", "fine-tune"), "train"),
    **dict.fromkeys(("leaderboard", "site"), "serve"),
    **dict.fromkeys(("results", "records"), "list records"),
    "gate": "check",
    "card": "models card",
}
"""Names that other programs have for a command."""

_ARGUMENTS = {"run": "--model", "train": "--model", "check": "--candidate", "serve": "--results"}
"""The options that stand for the word behind a command that takes none."""

_LISTS = ("--tasks", "--languages", "--subsets", "--splits", "--devices")
"""The options whose values are joined by commas."""


class _Commands(click.Group):
    """A group that imports a command only when it is called, so that --help stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        home = "leaderboard" if cmd_name in SITE else "harness"
        # import.py could not be imported by a statement: that command's file is import_.py.
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        with hold_collector():
            module = importlib.import_module(f"{home}.commands.{name}")
        _freeze()
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; the error for an unknown name suggests similar ones."""
        if args and args[0] in REMOVED:
            raise UsageError(f"`harness {args[0]}` was removed. {REMOVED[args[0]]}")
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            guess = _GUESSES.get(args[0])
            close = [guess] if guess else find_similar_names(args[0], COMMANDS)
            more = f" Did you mean {' or '.join(close)}?" if close else f" There is: {', '.join(COMMANDS)}."
            ctx.fail(f"No such command {args[0]!r}.{more}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


_OVERVIEW = """\
How good is this encoder downstream, compared with the others under the same treatment?

You have a checkpoint:
  harness run --model FOLDER --tasks STS12,Banking77Classification.v2 --limit 100
                                                           a quick look, in no table
  harness run --model FOLDER --suite mteb                  the scores, kept in ./results
  harness run --model FOLDER --suite glue --recipe glue-quick
  harness compare OTHER FOLDER                             FOLDER − OTHER, and what else differs

You gate a change in CI:
  harness baseline set main --model FOLDER --suite nanobeir
  harness check --candidate NEW --baseline main            ends with 0, 1 (worse) or 3 (open)

You read results:
  harness serve                                            the leaderboard in a browser
  harness show MODEL                                       what was measured of a model

harness list models      or suites, tasks, recipes, records
harness doctor           what is missing on this machine
harness --help           every command
harness run --help       the options of one
"""


def _print_version(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"harness, version {find_version()}")
        context.exit()


@click.command(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        # --max_length is --max-length.
        "token_normalize_func": lambda name: name.replace("_", "-"),
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def program(context: click.Context) -> None:
    """How good is this encoder downstream, compared with the others under the same treatment?

    Exit codes: 0 all done, 1 a task failed or a candidate regressed, 2 misuse, 3 a check is
    inconclusive or a fit not identified, 70 an unforeseen error, 130 interrupted.

    Tab completes names: eval "$(_HARNESS_COMPLETE=bash_source harness)" (docs/command-line.md).
    """
    if context.invoked_subcommand is None:
        click.echo(_OVERVIEW, nl=False)


SIGPIPE_CODE = 141
"""The exit code of a shell for a process that SIGPIPE has ended."""


FAULT_CODE = 70
"""The exit code after an error that nobody foresaw, EX_SOFTWARE of sysexits.h."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code; SIGTERM ends it as Ctrl-C does."""
    codes: list[int] = []
    # In the process of another program, what that leaves to its end must happen.
    script, module = [*sys.orig_argv, "", ""][1:3]
    if os.path.basename(script) == "harness" or (script, module) == ("-m", "harness"):
        shorten_exit(codes)
    # Slurm, Docker and Kubernetes stop a process by SIGTERM, which Python does not turn into an exception.
    signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        code = invoke(sys.argv[1:] if arguments is None else arguments)
    # Python itself would end with 1, which says that a candidate regressed.
    except Exception:
        traceback.print_exc()
        code = FAULT_CODE
    try:
        sys.stdout.flush()
    # Its reader has gone. Without a stdout there is none.
    except (BrokenPipeError, AttributeError):
        code = SIGPIPE_CODE if sys.stdout else code
    if code == SIGPIPE_CODE:
        # Python flushes once more at the end, and would end with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    codes.append(code)
    sys.exit(code)


def _freeze() -> None:
    """Exempt all present objects from garbage collection."""
    # duckdb and triton take what is frozen for leaked, and print dozens of lines at the end of the process.
    if sys.modules.keys().isdisjoint(("duckdb", "triton")):
        gc.freeze()


def _raise_interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@clean_output()
def invoke(arguments: list[str]) -> int:
    """The exit code of a command line; a user's mistake prints a message and no traceback."""
    try:
        for text in arguments:
            require_utf8(text)
        # Else click itself would print errors and exit, and a HarnessError would not get its own code.
        code: Any = program.main(args=arguments, prog_name="harness", standalone_mode=False)
    except click.exceptions.Abort:
        return _report_interrupt()
    except click.ClickException as error:
        name, context = (
            (error.option_name, error.ctx) if isinstance(error, click.NoSuchOption) else ("", None)
        )
        if name in REMOVED_OPTIONS:
            click.echo(f"Error: {name} was removed: {REMOVED_OPTIONS[name]}", err=True)
        elif instead := _find_hint(name, context):
            click.echo(f"Error: There is no {name}. Did you mean {instead}?", err=True)
        elif " " in name:
            text = "An option and its value are two; the action's `arguments` has one on a line."
            click.echo(f"Error: {name!r} is one argument. {text}", err=True)
        elif len(arguments) > 1 and arguments[0] in _ARGUMENTS and not arguments[1].startswith("-"):
            command, word = arguments[:2]
            text = f"{command} takes options only. Did you mean {_ARGUMENTS[command]} {word}?"
            click.echo(f"Error: harness {text}", err=True)
        elif joined := _join_values(arguments):
            click.echo(f"Error: Values are joined by commas. Did you mean {joined}?", err=True)
        else:
            error.show()
            group = error.ctx.command if isinstance(error, click.UsageError) and error.ctx else None
            if isinstance(group, click.Group) and group is not program and len(arguments) > 1:
                click.echo(f"There is: {', '.join(sorted(group.commands))}.", err=True)
        return 2
    except HarnessError as error:
        click.echo(f"Error: {error}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        return _report_interrupt()
    # The reader, such as `head`, has closed the pipe; click and rich make it an exit with 1, which would say
    # that a candidate regressed. Python flushes stdout when it ends, and would complain of the same error
    # again on stderr.
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code != 1:
            raise
        sys.stderr.close()
        return SIGPIPE_CODE
    # In files of a few brackets by the hundred thousand; readers that expect them name the file.
    except RecursionError:
        click.echo("Error: A file that was read is nested too deep.", err=True)
        return 2
    # DuckDB ends a query on a signal by this error, in place of the interrupt.
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        return _report_interrupt()
    # The name of a file in a folder that was read; those in the arguments are refused above.
    except UnicodeEncodeError as error:
        click.echo(f"Error: {explain_not_utf8(error.object)}", err=True)
        return 2
    except OSError as error:
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        click.echo(f"Error: {place}{error.strerror or error}", err=True)
        # What is typed is the only source of names that no file can have.
        return 2 if error.errno == errno.ENAMETOOLONG else FAULT_CODE
    return code if isinstance(code, int) else 0


def _find_hint(name: str, context: click.Context | None) -> str:
    """What to type in place of an option of another program; empty where the command has no such thing."""
    if context is None:
        return ""
    arguments = [one for one in context.command.params if isinstance(one, click.Argument)]
    if any(name == f"--{argument.name}" for argument in arguments):
        shown = " ".join(argument.make_metavar(context) for argument in arguments)
        return f"{name[2:].upper()} without an option, as in {context.command_path} {shown}"
    options = {spelling for one in context.command.params for spelling in one.opts}
    instead = _HINTS.get(name, "")
    if "--candidate" in options:
        instead = instead.replace(_MODEL, "--candidate MODEL")
    hints = (instead, _TRAINING_HINTS.get(name, ""))
    return next((hint for hint in hints if hint.partition(" ")[0] in options), "")


def _join_values(arguments: list[str]) -> str:
    """The option of `--tasks A B` as it is meant, `--tasks A,B`; empty where no such option is typed."""
    for index, option in enumerate(arguments, 1):
        values = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments[index:]))
        if option in _LISTS and len(values) > 1:
            return f"{option} {','.join(value.strip(',') for value in values)}"
    return ""


def _report_interrupt() -> int:
    """The exit code after Ctrl-C, with its message."""
    click.echo("\nInterrupted. What was finished is kept; the same command goes on from there.", err=True)
    # An interrupt that has left an exec(), such as that of a dataclass in an import, makes Python end by
    # SIGINT whatever the exit code, unless another exec() comes after it.
    exec("")
    return 130
