"""The verbs that take a path, for a pipeline: each of its models as any other."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import OutputError

if TYPE_CHECKING:
    from anamnesis.checkpoint.pipelines import Pipeline
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.spellings import Named
    from anamnesis.model import Model


def pipeline_at(where: Any) -> Pipeline | None:
    """Return the pipeline at a path; None if there is none."""
    if not isinstance(where, (str, os.PathLike)) or not os.path.isdir(where):
        return None
    from anamnesis.checkpoint.pipelines import read_pipeline

    return read_pipeline(os.fspath(where))


def write_pipeline(
    parse: Callable[..., Model],
    pipeline: Pipeline,
    out: Any,
    to: Any,
    options: Mapping[str, Any],
    verb: str,
) -> Report:
    """Write each model of a pipeline, and what goes with them."""
    from anamnesis.convert.pipelines import PipelineOutput
    from anamnesis.convert.request.form import form_of
    from anamnesis.convert.request.targets import output_target, target

    if not isinstance(out, (str, os.PathLike)):
        raise OutputError(f"{pipeline.root}: is a pipeline, which becomes a directory; name a path")
    if options.get("part") is not None:
        raise OutputError(
            f"{pipeline.root}: is a pipeline, whose models are made in parts one by one",
            remedy="leave part=... out",
        )
    opens = inspect.signature(parse).parameters
    opening = {name: value for name, value in options.items() if name in opens}
    options = {name: value for name, value in options.items() if name not in opens}
    if to is None:
        to = output_target(out, of_gguf=False)
    asked = target("safetensors" if verb == "remember" else to)
    form = form_of(asked, out, is_cut=options.get("max_shard_size") is not None)

    def write(inner: str, output: str) -> Report:
        with parse(inner, **pipeline.opening(inner, opening)) as model:
            if verb == "remember":
                return model.remember(output, to, **options)
            return write_component(model, output, to, options, verb)

    replaces = bool(options.get("force") or options.get("resume"))
    made = PipelineOutput(pipeline, os.fspath(out), form)
    return made.write(write, replaces=replaces, variant=opening.get("variant"))


def write_component(
    model: Model, out: str, to: Named, options: Mapping[str, Any], verb: str
) -> Report:
    """Write a model of a pipeline; one of which nothing suits the encoding stays plain."""
    from anamnesis.convert.request.request import RememberOptions
    from anamnesis.convert.request.targets import target

    if target(to).encoding is not None:
        planned = {k: v for k, v in options.items() if k not in ("force", "resume", "progress")}
        plan = model.plan(to, **planned)
        if plan.is_plain and not plan.account.repacked:
            own = {k: v for k, v in options.items() if k in RememberOptions.__annotations__}
            return model.remember(out, options.get("dtype") or "bf16", **own)
    written: Report = getattr(model, verb)(out, to, **options)
    return written
