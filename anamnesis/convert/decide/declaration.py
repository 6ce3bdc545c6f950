"""What an output says of its encodings: in config.json, beside it, in headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.decide.possible import Piece
from anamnesis.formats.written import WRITERS
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries.tied_heads import tied_head

if TYPE_CHECKING:
    from anamnesis.convert.decide.decided import Decided

_WEIGHT = ".weight"
_METHOD = "quant_method"


@dataclass(frozen=True)
class Declaration:
    """What makes other programs, and this one, read the codes of an output as what they are."""

    of: Decided

    @property
    def config_names(self) -> frozenset[str]:
        """The files that have the sections about the output."""
        return frozenset(one.layout.config_name for one in self._encodings.values())

    def sections(self) -> dict[str, Any]:
        """Return the sections of the config about the output, by key; empty if it needs none."""
        if self._describing is None:
            return {}
        encoding, config = self._describing
        return dict.fromkeys(encoding.layout.config_keys, config)

    def files(self) -> dict[str, dict[str, Any]]:
        """Return the JSON files that describe the output beside config.json, by name."""
        if self._describing is None:
            return {}
        files = self._describing[0].layout.files(self._layers)
        return {
            name: {key: self._without_moved(section) for key, section in file.items()}
            for name, file in files.items()
        }

    def settings(self) -> dict[str, Any] | None:
        """Return what a lone file must say of its encoding, so that it can be read again."""
        # None if the tensors show all of it.
        made = self._encodings
        unsure = [name for name, encoding in made.items() if encoding.layout.needs_config]
        if not unsure:
            open_settings = self._open_settings()
            alike = [one.layout for one in made.values() if one.layout.needs_method]
            if open_settings or not alike or self.of.writer.id != "safetensors":
                return open_settings
            # Another producer has the same names.
            return {_METHOD: alike[0].declare(Layers(()))[_METHOD]}
        self._check_has_place(unsure[0], "bits and group size")
        by_layer = self._by_layer
        if by_layer is not None:
            return by_layer[1]
        if len(made) > 1:
            raise _beyond_one_file(made, "write one of them")
        return dict(made[unsure[0]].layout.declare(Layers(())))

    def _open_settings(self) -> dict[str, Any] | None:
        """Return what shapes leave open of codes that are moved; None if they show all of it."""
        shapes = (
            {piece.name: piece.weight.shape for piece in self.of.pieces} if self.of.moved else {}
        )
        said: list[dict[str, Any]] = []
        for name, (encoding, *_) in self.of.moved.items():
            for called in (name, f"{name}{_WEIGHT}"):  # as stacks of experts are, once moved
                fields = encoding.layout.fields
                names = {
                    field.role: self.of.request.renamed(field.named(called)) for field in fields
                }
                known = {role: shapes[part] for role, part in names.items() if part in shapes}
                is_known = fields[0].role in known
                settings = dict(encoding.layout.undetermined(known)) if is_known else {}
                said += [settings] if settings and settings not in said else []
        if not said:
            return None
        if len(self._encodings) > 1 or len(said) > 1:
            raise _beyond_one_file(self._encodings, "write one of them, or a directory")
        self._check_has_place(next(iter(self._encodings)), ", ".join(said[0]))
        return said[0]

    def _check_has_place(self, encoding: str, settings: str) -> None:
        if self.of.writer.id != "safetensors":
            raise UnsupportedError(
                f"{encoding} cannot be read again from {WRITERS[self.of.writer.id].title}, which"
                f" has no place for its {settings}; write safetensors"
            )

    @cached_property
    def _coded(self) -> list[Piece]:
        return [piece for piece in self.of.pieces if not piece.is_plain]

    @cached_property
    def _encodings(self) -> dict[str, Encoding]:
        """What weights are in, by id: one that says it of all moved ones, and of others, if any."""
        each = {id(piece.encoding): piece.encoding for piece in self._coded}
        coded = {encoding.id: encoding for encoding in each.values()}
        moved = [{one.id: one for one in encodings} for encodings in self.of.moved.values()]
        for name, encoding in moved[0].items() if moved else ():
            if all(name in others for others in (*moved, coded or moved[0])):
                return coded | {name: encoding}
        return coded | {first.id: first for first, *_ in self.of.moved.values()}

    @cached_property
    def _describing(self) -> tuple[Encoding, dict[str, Any]] | None:
        """The encoding whose config describes the output, and that; None if none does."""
        declared = {
            name: self._without_moved(encoding.layout.declare(self._layers))
            for name, encoding in self._encodings.items()
        }
        configs = {name: config for name, config in declared.items() if config}
        if not configs:
            return None
        by_layer = self._by_layer
        if by_layer is None and len({repr(config) for config in configs.values()}) > 1:
            raise _beyond_one_config(list(configs))
        if not self.of.dense:
            raise _beyond_one_config([*configs, "what is kept as it is stored"])
        name, config = next(iter(configs.items()))
        return by_layer or (self._encodings[name], config)

    @property
    def _by_layer(self) -> tuple[Encoding, dict[str, Any]] | None:
        """The encoding of most modules, and a config that names the others."""
        # None if there are none, or no config can.
        renamed, asked = self.of.request.renamed, self.of.request.encoding
        usual = next(iter(self._encodings.values()))
        usual = self._encodings.get(asked.id, usual) if asked is not None else usual
        each: dict[str, tuple[Encoding, ...]] = {one.name: (one.encoding,) for one in self._coded}
        each |= {renamed(name): encodings for name, encodings in self.of.moved.items()}
        named = {_module(renamed(name)) for name in self.of.asked.others}
        others = {
            _module(name): ways[0]
            for name, ways in each.items()
            if _module(name) in named or all(way.id != usual.id for way in ways)
        }
        config = (
            usual.layout.declare_each(others, self.of.seen.checkpoint.config) if others else None
        )
        return None if config is None else (usual, config)

    @cached_property
    def _layers(self) -> Layers:
        """The modules whose weights are written as values, and as codes."""
        from anamnesis.schemes.libraries.stacks import is_stack

        quantised = [_module(name) for name in (*(one.name for one in self._coded), *self.of.moved)]
        values = [one for one in self.of.pieces if one.is_plain and not one.is_moved]
        matrices = [one for one in values if len(one.weight.shape) > 1]
        plain = [_module(one.name) for one in matrices if one.name.endswith(_WEIGHT)]
        head = tied_head(self.of.seen.checkpoint.config)
        if head is not None and head not in plain and head not in quantised:
            plain.append(head)
        stacks = dict.fromkeys(
            one.name.rpartition(".")[0]
            for one in matrices
            if not one.name.endswith(_WEIGHT) and is_stack(one.name, one.weight.shape)
        )
        return Layers([*plain, *stacks], quantised, self.of.seen.checkpoint.config)

    def _without_moved(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a config whose lists of plain modules name no moved one, as a head may be."""
        modules = set(map(_module, self.of.moved))
        return {
            key: [one for one in value if not (isinstance(one, str) and one in modules)]
            if isinstance(value, list)
            else value
            for key, value in config.items()
        }


def _module(name: str) -> str:
    return name.removesuffix(_WEIGHT)


def _beyond_one_file(encodings: Mapping[str, Encoding], remedy: str) -> UnsupportedError:
    kinds = " and what ".join(encodings)
    return UnsupportedError(f"one file cannot say what is {kinds}", remedy=remedy)


def _beyond_one_config(kinds: list[str]) -> UnsupportedError:
    return UnsupportedError(
        f"one config.json cannot describe {' and '.join(kinds)}",
        remedy="write one of them, or one file instead of a directory",
    )
