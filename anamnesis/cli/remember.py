"""`amn remember`: write the weights at full precision."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anamnesis.base.printable import numbered
from anamnesis.cli.verbs import verb
from anamnesis.cli.writing import Task, asked_dtype, run
from anamnesis.convert.request.kinds import read_target
from anamnesis.convert.request.options import options_of
from anamnesis.formats.written import asked_format

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.cli.output_names import Naming
    from anamnesis.convert.report.inspection import Inspection
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.targets import Target
    from anamnesis.model import Model

_DEFAULT: DTypeName = "bf16"


@verb(
    "remember",
    "amn remember model-fp8.safetensors",
    "amn remember Qwen3-8B-FP8/ -o Qwen3-8B/ --max-shard-size 5GB",
    "amn remember model-fp8.safetensors --to gguf",
    "cat model-Q4_K_M.gguf | amn remember - --to f16 -o - > model-f16.safetensors",
    "amn remember -r loras/ -o plain/ --skip-existing",
)
def command(
    paths: tuple[str, ...], to: Target | None, dtype: DTypeName | None, **given: Any
) -> None:
    """Dequantise: write weights at full precision, exactly."""
    options = {name: given.pop(name) for name in options_of("remember", "remember")}
    container = None if to is None else to.container
    is_folder = given["out"] is not None and asked_format(given["out"]) is None
    asked = dtype if to is None else asked_dtype(to, dtype)
    run(_Remember(container, asked, options, is_folder), paths, **given)


class _Remember(Task):
    done = "remembered"

    def __init__(
        self,
        container: str | None,
        asked: DTypeName | None,
        options: dict[str, Any],
        is_folder: bool,
    ) -> None:
        self._is_folder = is_folder
        self._container = container
        self.dtype = asked or _DEFAULT
        self.says_kept = asked is not None and not options["cast_all"]
        self._options = options | {"cast_all": bool(options["cast_all"])}

    @property
    def naming(self) -> Naming:
        from anamnesis.cli.output_names import Naming
        from anamnesis.convert.request.form import Form

        is_cut = self._options["max_shard_size"] is not None
        return Naming(self.dtype, Form(self._container or "safetensors", is_cut=is_cut))

    def naming_of(self, model: Model) -> Naming:
        from anamnesis.cli.output_names import any_of_dtype, becomes_directory

        form = self.naming.form
        if self._is_folder and becomes_directory(model, form):
            return self.naming._replace(form=form._replace(is_named_directory=True))
        weights = model.weights.values()
        has_dtype = any_of_dtype(weights, self.dtype, cast_all=self._options["cast_all"])
        return self.naming if has_dtype else self.naming._replace(word=None)

    def target(self, paths: tuple[str, ...], out: str | None) -> Target:
        from anamnesis.cli.places import asked_for

        named = asked_for(paths, None, out) or read_target("safetensors")
        found = read_target(f"{self._container or named.container or 'safetensors'}-{self.dtype}")
        return replace(found, is_directory=named.is_directory)

    def write(self, model: Model, out: Any, **progress: Any) -> Report:
        if self._container is None:
            return model.remember(out, self.dtype, **{**self._options, **progress})
        how = {**self._options, **progress}
        return model.convert(out, self._container, dtype=self.dtype, **how)

    def why_skipped(self, model: Model) -> str | None:
        options = self._options
        changes = options["cast_all"] or options["max_shard_size"] or model.problems
        plain = not any(tensor.is_quantized for tensor in model.values())
        same = model.format_id == "safetensors" == (self._container or "safetensors")
        return "nothing in it is quantised" if same and plain and not changes else None

    def parsed(self, inspection: Inspection) -> Iterator[str]:
        from anamnesis.cli.narration import parsed_lines

        return parsed_lines(inspection)

    def label(self, inspection: Inspection) -> str:
        if inspection.n_quantized:
            return f"Recalling... {numbered(inspection.n_quantized, 'tensor')}"
        return f"Copying...   {numbered(inspection.n_passthrough, 'tensor')}"

    def account(self, report: Report, stored: Collection[str]) -> Iterator[str]:
        from anamnesis.cli.narration import account_lines

        return account_lines(report, stored)
