"""What commands that write models share: tasks, and how a batch runs."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.levels import LEVEL_VARIABLE, resolve_level
from anamnesis.base.patterns import UnmatchedError
from anamnesis.base.printable import abbreviate
from anamnesis.checkpoint.gguf_parts import has_parts, same_models
from anamnesis.checkpoint.pipelines import is_pipeline, read_pipeline
from anamnesis.cli.errors import WRITING, as_options, complain, in_options
from anamnesis.cli.inputs import finish, models_below, outputs_below, run_batch
from anamnesis.cli.streams import data_stdout, is_nameless, is_stdout
from anamnesis.sources.urls import kind_of_url

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from anamnesis.base.dtypes import DTypeName
    from anamnesis.cli.narration import Narrator
    from anamnesis.cli.output_names import Naming, OutputNames
    from anamnesis.cli.verbs import OpenModel
    from anamnesis.convert.report.inspection import Inspection
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.targets import Target
    from anamnesis.convert.write.sinks import Writable
    from anamnesis.model import Model


class Task(ABC):
    """What one command does with each of its models, and says of it."""

    done: str  # the verb of the summary: remembered, converted
    dtype: DTypeName
    says_kept = False  # whether floats are kept though another dtype was asked for

    @property
    @abstractmethod
    def naming(self) -> Naming:
        """How outputs are named if the user does not name them."""

    def naming_of(self, model: Model) -> Naming:
        """Return how the output of one model is named, by its content."""
        return self.naming

    @abstractmethod
    def target(self, paths: tuple[str, ...], out: str | None) -> Target:
        """Return what `amn plan` calls the output."""

    @abstractmethod
    def write(self, model: Model, out: Any, **progress: Any) -> Report:
        """Write a model; `progress` may have a callback."""

    def write_component(self, model: Model, out: Any, **progress: Any) -> Report:
        """Write a model of a pipeline."""
        return self.write(model, out, **progress)

    def why_skipped(self, model: Model) -> str | None:
        """Return why a model of a batch is skipped; None if it is not."""
        return None

    @abstractmethod
    def parsed(self, inspection: Inspection) -> Iterator[str]:
        """Yield what was found."""

    @abstractmethod
    def label(self, inspection: Inspection) -> str:
        """Return what the progress bar is labelled."""

    def label_done(self, label: str, report: Report) -> str:
        """Return the label of the line that stays."""
        return label

    @abstractmethod
    def account(self, report: Report, stored: Collection[str]) -> Iterator[str]:
        """Yield what became of every stored tensor."""


class _Skipped(Exception):
    """An input is skipped; the message says why."""


def run(
    task: Task,
    paths: tuple[str, ...],
    *,
    out: str | None,
    recursive: bool,
    skip_existing: bool,
    as_json: bool,
    quiet: bool,
    open_model: OpenModel,
    dry_run: bool,
) -> None:
    """Write and report the outputs of all inputs; exit with 1 if any failed."""
    from anamnesis.cli.commit import note_command
    from anamnesis.cli.narration import Narrator
    from anamnesis.cli.output_names import OutputNames

    _check_level()
    models = _models(paths, out, recursive=recursive)
    if dry_run:
        _show_plan(task.target(paths, out), tuple(models))
        return
    stream = None
    if is_stdout(out):
        if as_json or len(models) > 1 or any(map(is_pipeline, models)):
            raise click.UsageError("standard output takes one model, and no --json beside it")
        stream, out = data_stdout(), None
    part = click.get_current_context().params["part"]
    if part is not None and (len(models) > 1 or any(map(is_pipeline, models))):
        raise click.UsageError("--part takes one model, and no pipeline: name a model in it")
    names = OutputNames(task.naming, out, list(models), models if recursive else None)
    own = {} if stream else names.leave_out_outputs()
    if own:
        complain(f"left out, as outputs of other inputs: {abbreviate(own)}", "warning")
    inputs = [path for path in models if path not in own]
    narrator = Narrator(
        sys.stderr if stream else sys.stdout,
        task,
        silent=as_json or quiet,
        brief=len(inputs) > 1 or any(map(is_pipeline, inputs)),
    )
    warns = quiet and not as_json
    outputs = _Outputs(task, names, out, stream, narrator, open_model, len(models) > 1, warns)

    def work(path: str) -> dict[str, Any]:
        write = outputs.write_pipeline if is_pipeline(path) else outputs.write
        try:
            done = write(path, skip_existing=skip_existing)
            if part not in (None, "commit"):
                note_command(done["output"])
            return done
        except _Skipped as skipped:
            narrator.skipped(path, str(skipped))
            return {"skipped": str(skipped)}

    failures = run_batch(inputs, work, as_json=as_json)
    narrator.summary(len(inputs), failures)
    finish(failures)


def _show_plan(target: Target, paths: tuple[str, ...]) -> None:
    """Run `amn plan` with the options of this command, as far as it has them."""
    context = click.get_current_context()
    # By its name, since it imports this module.
    plan: click.Command = import_module("anamnesis.cli.plan").command
    given: dict[str, Any] = {"recipe": ()}
    for one in plan.params:
        if one.name in context.params:
            given[one.name] = context.params[one.name]
        elif getattr(one, "multiple", False):
            given[str(one.name)] = ()
    context.invoke(plan, **given | {"paths": paths, "to": (target,)})


def _models(paths: tuple[str, ...], out: str | None, *, recursive: bool) -> dict[str, str]:
    """Return the inputs, each with the folder below the one named that it was found in.

    Parts of one model are one input, and what lies in the output is none.
    """
    models = models_below(paths) if recursive else dict.fromkeys(paths, "")
    outputs = outputs_below(models, paths, out) if recursive else []
    parts = same_models(models)
    for why, found in (
        ("what lies in the output", outputs),
        ("parts of models that others of their parts stand for", parts),
    ):
        if found:
            complain(f"left out, as {why}: {abbreviate(found)}", "warning")
    return {p: folder for p, folder in models.items() if p not in parts and p not in outputs}


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Writes the models of one command to their outputs."""

    task: Task
    names: OutputNames
    out: str | None
    stream: Writable | None
    narrator: Narrator
    open_model: OpenModel
    several: bool
    warns: bool  # and prints nothing else

    def write(self, path: str, *, skip_existing: bool) -> dict[str, Any]:
        """Write one model, or raise `_Skipped`."""
        with self.open_model(path) as model:
            if self.stream is not None:
                return _report_dict(self._put(model, path, None, self.task.write))
            if is_nameless(path) and self.names.planned(path) != self.out:
                raise click.UsageError("standard input has no name; name the output file with -o")
            why = self.task.why_skipped(model) if self.several else None
            if why is not None:
                raise _Skipped(why)
            naming = self.task.naming_of(model)
            planned = self.names.planned(path, naming)
            if skip_existing and _is_there(planned):
                raise _Skipped(f"{planned} exists")
            output = self.names.of(path, naming)
            return _report_dict(self._put(model, path, output, self.task.write))

    def write_pipeline(self, path: str, *, skip_existing: bool) -> dict[str, Any]:
        """Write a pipeline: each of its models, then the other files."""
        from anamnesis.convert.pipelines import PipelineOutput

        pipeline = read_pipeline(path)
        assert pipeline is not None
        made = PipelineOutput(pipeline, self.names.of(path), self.task.naming.form)
        if skip_existing and made.is_there():
            raise _Skipped(f"{made.out} exists")
        written: list[dict[str, Any]] = []

        def write(inner: str, output: str) -> Report | None:
            if skip_existing and _is_there(output):
                return None
            opening = pipeline.opening(inner, self.open_model.opening)  # it may lack the variant
            with self.open_model._replace(opening=opening)(inner) as model:
                report = self._put(model, inner, output, self.task.write_component)
            written.append({"path": inner, **_report_dict(report)})
            return report

        asked = click.get_current_context().params
        replaces = asked["force"] or asked["resume"] or skip_existing
        variant = self.open_model.opening["variant"]
        report = made.write(write, replaces=replaces, variant=variant)
        self.narrator.copied(report)
        for sentence in report.notes:  # about lost weights: -q does not silence them
            complain(f"{path}: {in_options(sentence)}", "warning")
        rest = {name: report.to_dict()[name] for name in ("copied", "dropped")}
        return {"output": made.out, "models": written, **rest}

    def _put(
        self, model: Model, path: str, output: str | None, write: Callable[..., Report]
    ) -> Report:
        context = click.get_current_context()
        context.meta[WRITING] = output
        if self.several or path not in context.params["paths"]:
            write = _dropping_what_is_there(path, context.params["drop"], write)
        try:
            report = self.narrator.convert(model, path, self.stream or output, write)
        except ValueError as error:
            raise as_options(error) from None
        for warning in self.narrator.warnings(report) if self.warns else ():
            complain(f"{path}: {warning}" if self.several else warning, "warning")
        return report


def _dropping_what_is_there(
    path: str, drop: Iterable[str], write: Callable[..., Report]
) -> Callable[..., Report]:
    """Return `write` with patterns of --drop that need not match something in each input."""
    left = list(drop)

    def lenient(model: Model, out: Any, **progress: Any) -> Report:
        while True:
            try:
                return write(model, out, drop=left, **progress)
            except UnmatchedError as error:
                if error.option != "drop":
                    raise
                complain(f"{path}: --{error}", "warning")
                left.remove(error.pattern)

    return lenient


def _is_there(output: str) -> bool:
    """Whether an output exists: a file, its parts, or a directory that is not empty."""
    if kind_of_url(output) == "bucket":
        from anamnesis.convert.resume.bucket import is_made

        return is_made(output)
    is_directory = os.path.isdir(output) and bool(os.listdir(output))
    return is_directory or os.path.isfile(output) or has_parts(output)


def _report_dict(report: Report) -> dict[str, Any]:
    """Return the report, with its path as `output`, since `path` is the input."""
    fields = report.to_dict()
    return {"output": fields.pop("path"), **fields}


def _check_level() -> None:
    """Refuse an unknown kernel level before anything is read."""
    try:
        resolve_level()
    except ValueError as error:
        raise click.UsageError(f"{LEVEL_VARIABLE}: {error}") from None


def asked_dtype(target: Target, dtype: DTypeName | None) -> DTypeName | None:
    """Return the dtype that target or option names."""
    try:
        found = target.output_dtype(dtype)
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from None
    return None if found is None else found.name.lower()  # type: ignore[return-value]
