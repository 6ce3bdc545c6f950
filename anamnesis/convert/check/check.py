"""A model checked: its headers, then its values, then its hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from anamnesis.base.errors import AnamnesisError, Cancelled
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.convert.check import manifest as manifests
from anamnesis.convert.check import structure
from anamnesis.convert.check.findings import Check, Finding, Kind
from anamnesis.convert.check.values import findings_of, look_at
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.request.request import How


def check(
    model: Input,
    limits: ParseLimits,
    how: How,
    *,
    values: bool = True,
    manifest: str | None = None,
    others: Mapping[Kind, Callable[[], Iterable[str]]] = {},
) -> Check:
    """Check a model; with `values` all of its bytes are read. `others` find further problems."""
    given = None if manifest is None else manifests.read_manifest(manifest, Budget(limits))
    findings = list(structure.unreadable(model.ledger))
    done: dict[str, str] = {}

    def took(name: str, found: tuple[list[Finding], str]) -> None:
        findings.extend(found[0])
        done[name] = found[1]

    took("config", structure.against_config(model, limits))
    of_index = list(structure.against_index(model.checkpoint))
    took("index", (of_index, "checked" if model.checkpoint.indexes else "there is none"))
    if values:
        weights = list(model.ledger.weights.values())
        took("values", (findings_of(weights, look_at(weights, how)), "checked"))
        took("tied head", (list(structure.tied_heads(model, how)), "checked"))
        took("copies", (list(structure.copies(model.ledger, how)), "checked"))
        of_hub = structure.against_hub(model.checkpoint, how)
        if of_hub is not None:
            took("hub", of_hub)
    if manifest is not None:
        took("manifest", _manifest(model, how, given, manifest))
    for kind, find in others.items():
        try:
            texts = list(find())
        except Cancelled:
            raise
        except (AnamnesisError, ValueError) as error:
            texts = [str(error)]
        took(kind, ([Finding("problem", kind, (), text) for text in texts], "checked"))
    model.checkpoint.check_unchanged()
    findings.sort(key=lambda finding: finding.severity != "problem")
    stored = model.ledger.stored.values()
    n_bytes = sum(tensor.n_bytes for tensor in stored)
    return Check(model.path, len(stored), n_bytes, tuple(findings), done)


def _manifest(
    model: Input, how: How, given: manifests.Manifest | None, path: str
) -> tuple[list[Finding], str]:
    """Compare a model with its manifest, or write that where there is none."""
    try:
        made = manifests.manifest_of(model.ledger, how)
    except Cancelled:
        raise
    except AnamnesisError as error:
        problem = Finding("problem", "manifest", (), str(error))
        return [problem], "not checked: not all weights can be decoded"
    if given is None:
        manifests.write_manifest(made, path)
        return [], f"{path} is written"
    return manifests.against_manifest(given, made, path), f"compared with {path}"
