"""What `amn forget`, `amn convert` and `amn plan` ask of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.writing import Task
from anamnesis.convert.request.options import OPTIONS

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.cli.narration import Voice
    from anamnesis.cli.output_names import Naming
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.form import Form
    from anamnesis.convert.request.targets import Target
    from anamnesis.model import Model


def what_is_asked(
    target: Target, given: dict[str, Any], out: str | None
) -> tuple[Form, dict[str, Any]]:
    """Return the output's form and the library's arguments, which are taken out of `given`."""
    from anamnesis.convert.request.form import form_of

    form = form_of(target, out, is_cut=given["max_shard_size"] is not None)
    _check_use(target, form.container, given)
    if target.dtype is not None and given["dtype"] not in (None, target.dtype.name.lower()):
        raise click.UsageError(f"the target {target.text} contradicts --dtype")
    settings, recipe = dict(given.pop("settings")), given.pop("recipe")
    names = {row.name for row in OPTIONS if row.call in ("remember", "convert", "mix")}
    options = {name: given.pop(name) for name in names & given.keys()}
    overrides: dict[str, str] = {}
    for pattern, name in (*options["overrides"], *recipe):
        overrides.setdefault(pattern, name)
    options |= {name: dict(options[name]) for name in ("rename", "override_kv")}
    options |= {"overrides": overrides, "metadata": {**(options["metadata"] or {}), **settings}}
    return form, {name: value for name, value in options.items() if value is not None}


def _check_use(target: Target, container: str, given: dict[str, Any]) -> None:
    """Refuse options that do not apply to the output."""
    for row in OPTIONS:
        if not given.get(row.name):
            continue
        if row.only == "gguf" and container != "gguf":
            raise click.UsageError(f"{row.flag} is for GGUF files, not {container}")
        if row.only == "encoding" and target.encoding is None:
            raise click.UsageError(
                f"{row.flag} says which weights are quantised, and {target.text} quantises none"
            )
        if row.call == "mix" and target.mix is None:
            raise click.UsageError(
                f"{row.flag} is for a mix of GGUF's types, such as gguf-q4_k_m, not {target.text}"
            )


class Encode(Task):
    """Writes models as they are asked for."""

    def __init__(self, verb: str, target: Target, out: str | None, given: dict[str, Any]) -> None:
        if given["worst"] and not given["loss"]:
            raise click.UsageError("--worst shows what --no-loss does not measure")
        self._verb = verb
        self._target = target
        self._worst: bool = given.pop("worst")
        form, self._options = what_is_asked(target, given, out)
        self._options["strict"] = self._options["strict"] or None
        dtype = self._options.get("dtype")
        own: Any = None if target.dtype is None else target.dtype.name.lower()
        self._dtype: DTypeName = dtype or own or "bf16"
        self._is_asked = bool(dtype or target.dtype)
        self._options["cast_all"] = target.casts_all(dtype, self._options.get("cast_all"))
        self._is_folder = form.is_named_directory
        # The form of outputs that are not named yet.
        self._form = form._replace(is_named_directory=False, name="", is_named_file=False)

    @property
    def naming(self) -> Naming:
        from anamnesis.cli.output_names import Naming

        name = self._target.name
        word = self._dtype if name is None else name.replace("-block", "")
        if self._form.container == "gguf" and name is not None:
            word = word.removeprefix("gguf-").upper()
        return Naming(word, self._form, keeps_dtypes=False)

    @property
    def voice(self) -> Voice:
        from anamnesis.cli.encoding_voice import EncodingVoice

        return EncodingVoice(
            self._verb,
            self._dtype,
            worst=self._worst,
            verified=self._options["verify"],
            same_as=self._options.get("expect_same"),
        )

    def naming_of(self, model: Model) -> Naming:
        from anamnesis.cli.output_names import any_of_dtype, becomes_directory

        is_asked = self._is_folder and self._options.get("names") != "keep"
        if is_asked and becomes_directory(model, self._form):  # a final `/` asks for one
            return self.naming._replace(form=self._form._replace(is_named_directory=True))
        if self._target.encoding is not None:
            return self.naming
        weights = model.weights.values()
        keeps_blocks = self._form.container == "gguf" and not self._is_asked
        if keeps_blocks and any(w.parts[0].dtype.kind == "block" for w in weights):
            return self.naming._replace(word=None, keeps_dtypes=True, full_stem=True)
        has_dtype = any_of_dtype(weights, self._dtype, cast_all=self._options["cast_all"])
        return self.naming if has_dtype else self.naming._replace(word=None)

    def target(self, paths: tuple[str, ...], out: str | None) -> Target:
        return self._target

    def write(self, model: Model, out: Any, **progress: Any) -> Report:
        verb = model.forget if self._verb == "forget" else model.convert
        return verb(out, self._target.text, **{**self._options, **progress})

    def write_component(self, model: Model, out: Any, **progress: Any) -> Report:
        from anamnesis.pipelines import write_component

        options = {**self._options, **progress}
        return write_component(model, out, self._target.text, options, self._verb)
