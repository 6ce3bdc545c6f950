"""What an output says of its encodings: in config.json, beside it, in headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.ask.request import Request
from anamnesis.convert.plan.files import OutputWeight
from anamnesis.formats.base import Writer
from anamnesis.formats.writers import WRITERS
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.core.plain import Moved
from anamnesis.schemes.says.tied_heads import tied_head

_WEIGHT = ".weight"
_METHOD = "quant_method"


class Declaration:
    """What makes other programs, and this one, read the codes of an output as what they are."""

    def __init__(
        self,
        weights: Sequence[OutputWeight],
        repacked_as: Mapping[str, tuple[Encoding, ...]],
        others: Mapping[str, Encoding],
        request: Request,
        writer: Writer,
        config: Mapping[str, Any],
        *,
        is_dense: bool,
    ) -> None:
        self._weights = weights
        self._repacked_as = repacked_as
        self._others = others
        self._request = request
        self._writer = writer
        self._config = config
        self._is_dense = is_dense

    @cached_property
    def config_names(self) -> frozenset[str]:
        """The files that have the sections about the output."""
        made = self._encodings()
        made |= self._repackings(made)
        return frozenset(encoding.layout.config_name for encoding in made.values())

    def sections(self) -> dict[str, Any]:
        """Return the sections of the config about the output, by key; empty if it needs none."""
        found = self._describing
        if found is None:
            return {}
        encoding, config = found
        return dict.fromkeys(encoding.layout.config_keys, config)

    def files(self) -> dict[str, dict[str, Any]]:
        """Return the JSON files that describe the output beside config.json, by name."""
        found = self._describing
        if found is None:
            return {}
        files = found[0].layout.files(self._layers)
        return {
            name: {key: self._without_repacked(section) for key, section in file.items()}
            for name, file in files.items()
        }

    def settings(self) -> dict[str, Any] | None:
        """Return what a lone file must say of its encoding, so that it can be read again.

        None if the tensors show all of it.
        """
        made = self._encodings()
        made |= self._repackings(made)
        unsure = [name for name, encoding in made.items() if encoding.layout.needs_config]
        if not unsure:
            return self._untold(list(made)) or self._method(made)
        if self._writer.id != "safetensors":
            raise UnsupportedError(
                f"{unsure[0]} cannot be read again from {WRITERS[self._writer.id].title}, which has"
                " no place for its bits and group size; write safetensors"
            )
        by_layer = self._by_layer(made)
        if by_layer is not None:
            return by_layer[1]
        if len(made) > 1:
            raise UnsupportedError(
                f"one file cannot say what is {' and what '.join(made)}", remedy="write one of them"
            )
        return dict(made[unsure[0]].layout.declare(Layers(())))

    def _method(self, made: Mapping[str, Encoding]) -> dict[str, Any] | None:
        """Return whose encoding it is, where another producer has the same names."""
        alike = [encoding.layout for encoding in made.values() if encoding.layout.needs_method]
        if not alike or self._writer.id != "safetensors":
            return None
        return {_METHOD: alike[0].declare(Layers(()))[_METHOD]}

    def _untold(self, encodings: Sequence[str]) -> dict[str, Any] | None:
        """Return what shapes leave open of codes that are moved; None if they show all of it."""
        shapes = {made.name: made.weight.shape for made in self._weights}
        said: list[dict[str, Any]] = []
        for name, (encoding, *_) in self._repacked_as.items():
            for called in (name, f"{name}{_WEIGHT}"):  # as stacks of experts are, once moved
                fields = encoding.layout.fields
                names = {field.role: self._request.renamed(field.named(called)) for field in fields}
                known = {role: shapes[part] for role, part in names.items() if part in shapes}
                settings = dict(encoding.layout.untold(known)) if fields[0].role in known else {}
                said += [settings] if settings and settings not in said else []
        if not said:
            return None
        if len(encodings) > 1 or len(said) > 1:
            raise UnsupportedError(
                f"one file cannot say what is {' and what '.join(encodings)}",
                remedy="write one of them, or a directory",
            )
        if self._writer.id != "safetensors":
            raise UnsupportedError(
                f"{encodings[0]} cannot be read again from {WRITERS[self._writer.id].title}, which"
                f" has no place for its {', '.join(said[0])}; write safetensors"
            )
        return said[0]

    def _encodings(self) -> dict[str, Encoding]:
        """Return what weights are encoded in, by id; there are many weights and few of them."""
        made = {id(w.encoding): w.encoding for w in self._weights if not w.is_plain}
        return {encoding.id: encoding for encoding in made.values()}

    @cached_property
    def _describing(self) -> tuple[Encoding, dict[str, Any]] | None:
        """Return the encoding whose config describes the output, and that; None if none does."""
        encodings = self._encodings()
        encodings |= self._repackings(encodings)
        if not encodings:
            return None
        layers = self._layers
        declared = {
            name: self._without_repacked(encoding.layout.declare(layers))
            for name, encoding in encodings.items()
        }
        configs = {name: config for name, config in declared.items() if config}
        if not configs:
            return None
        by_layer = self._by_layer(encodings)
        if by_layer is None and len({repr(config) for config in configs.values()}) > 1:
            raise _beyond_one_config(list(configs))
        if not self._is_dense:
            raise _beyond_one_config([*configs, "what is kept as it is stored"])
        name, config = next(iter(configs.items()))
        return by_layer or (encodings[name], config)

    def _by_module(self) -> dict[str, tuple[Encoding, ...]]:
        """Return what each quantised module is in; of codes that are moved, all that say it."""
        each = {
            made.name.removesuffix(_WEIGHT): (made.encoding,)
            for made in self._weights
            if not made.is_plain
        }
        renamed = self._request.renamed
        return each | {
            renamed(name).removesuffix(_WEIGHT): encodings
            for name, encodings in self._repacked_as.items()
        }

    def _by_layer(
        self, encodings: Mapping[str, Encoding]
    ) -> tuple[Encoding, dict[str, Any]] | None:
        """Return the encoding of most modules, and a config that names the others.

        None if there are none, or no config can.
        """
        asked = self._request.encoding
        usual = next(iter(encodings.values()))
        if asked is not None and asked.id in encodings:
            usual = asked
        named = {self._request.renamed(name).removesuffix(_WEIGHT) for name in self._others}
        others = {
            module: ways[0]
            for module, ways in self._by_module().items()
            if module in named or all(way.id != usual.id for way in ways)
        }
        config = usual.layout.declare_each(others, self._config) if others else None
        return None if config is None else (usual, config)

    @cached_property
    def _layers(self) -> Layers:
        """Return the modules whose weights are written as values, and as codes."""
        quantised = [made.name.removesuffix(_WEIGHT) for made in self._weights if not made.is_plain]
        quantised += [name.removesuffix(_WEIGHT) for name in self._repacked_as]
        return Layers(self._plain_modules(quantised), quantised, self._config)

    def _plain_modules(self, quantised: Sequence[str]) -> list[str]:
        plain = [
            made.name.removesuffix(_WEIGHT)
            for made in self._weights
            if made.is_plain
            and not isinstance(made.weight, Moved)
            and len(made.weight.shape) > 1
            and made.name.endswith(_WEIGHT)
        ]
        head = tied_head(self._config)
        if head is not None and head not in plain and head not in quantised:
            plain.append(head)
        return plain + self._plain_experts()

    def _plain_experts(self) -> list[str]:
        """Return the modules of experts whose stacks are written as values."""
        from anamnesis.schemes.says.stacks import (
            is_stack,  # only here, for the sake of a quick start
        )

        names = [
            made.name.rpartition(".")[0]
            for made in self._weights
            if made.is_plain and is_stack(made.name, made.weight.shape)
            if not isinstance(made.weight, Moved) and not made.name.endswith(_WEIGHT)
        ]
        return list(dict.fromkeys(names))

    def _without_repacked(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a config whose lists of plain modules name no repacked one, as a head may be."""
        modules = {name.removesuffix(_WEIGHT) for name in self._repacked_as}
        return {
            key: [one for one in value if not (isinstance(one, str) and one in modules)]
            if isinstance(value, list)
            else value
            for key, value in config.items()
        }

    def _repackings(self, encoded: Mapping[str, Encoding]) -> dict[str, Encoding]:
        """Return the encodings of repacked weights, by id; the one that says it of all, if any.

        That is of those which are `encoded` too.
        """
        each = [{e.id: e for e in encodings} for encodings in self._repacked_as.values()]
        for name, encoding in each[0].items() if each else ():
            if all(name in others for others in (*each, encoded or each[0])):
                return {name: encoding}
        return {e[0].id: e[0] for e in self._repacked_as.values()}


def _beyond_one_config(kinds: list[str]) -> UnsupportedError:
    return UnsupportedError(
        f"one config.json cannot describe {' and '.join(kinds)}",
        remedy="write one of them, or one file instead of a directory",
    )
