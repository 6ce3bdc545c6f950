"""Special tokens and normalisers, as keys of a GGUF.

What is said twice differently: an id of tokenizer_config.json goes before one of config.json, and
a post-processor's template before `add_bos_token` and the like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anamnesis.architectures.tokenizers.added import SPECIAL_NAMES, content
from anamnesis.architectures.tokenizers.chat_templates import chat_templates
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST, Folder, flat, objects, section
from anamnesis.architectures.tokenizers.tokens import ID_KEYS
from anamnesis.base.errors import ParseError

_ADD_KEYS = ("bos", "eos", "sep")


def special_keys(
    folder: Folder,
    config: Mapping[str, Any],
    *,
    names: Sequence[str] = SPECIAL_NAMES,
    n_vocab: int | None = None,
    fallbacks: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the keys of special tokens, of what is added to text, templates and normalisers."""
    reading = _Reading(folder, names)
    ids: dict[str, int] = {}

    def put(name: str, given: Any) -> None:
        """Take an id of a name; the first that is given counts."""
        if not isinstance(given, int):  # a list of them, say
            return
        if not 0 <= given < 2**32:
            message = f"the id of the {name} token is {int(given)}"
            raise ParseError(message, source=str(folder.root))
        if n_vocab is None or given < n_vocab:
            ids.setdefault(name, int(given))

    for name in reading.names:
        text = reading.token(name)
        if text is not None:
            put(name, reading.ids.get(text))
    inner = section(config, "text_config")
    for name in reading.names:
        given = config.get(f"{name}_token_id")
        put(name, inner.get(f"{name}_token_id") if given is None else given)
    for name, i in (fallbacks or {}).items():
        put(name, i)
    found: dict[str, Any] = {}
    for name, i in ids.items():
        if name in ID_KEYS and name != "cls":  # which llama.cpp's converter leaves out
            found[f"tokenizer.ggml.{ID_KEYS[name]}"] = i
    for name, value in reading.add.items():
        if name in _ADD_KEYS:
            found[f"tokenizer.ggml.add_{name}_token"] = value
    found |= chat_templates(folder)
    return found | _normalizer(section(folder.json(FAST) or {}, "normalizer"))


class _Reading:
    """What tokenizer.json and tokenizer_config.json say, the latter amended by the former."""

    def __init__(self, folder: Folder, names: Sequence[str]) -> None:
        self.names = list(names)
        self.add: dict[str, bool] = {}
        self.tokenizer = folder.json(FAST)
        given = folder.json(CONFIG)
        self.config = dict(given) if given else None
        self.special = {name: self.token(name) for name in ("bos", "cls", "eos", "sep")}
        self.ids: dict[str, Any] = {}
        for token in objects((self.tokenizer or {}).get("added_tokens")):
            if isinstance(text := token.get("content"), str):
                self.ids.setdefault(text, token.get("id"))
        if self.tokenizer:
            self._read_template(self.tokenizer)
        for name in self.names:
            adds = (self.config or {}).get(f"add_{name}_token")
            if isinstance(adds, bool):
                self.add.setdefault(name, adds)

    def _read_template(self, tokenizer: Mapping[str, Any]) -> None:
        for name, other in (("bos", "cls"), ("eos", "sep")):
            if not self.special[name] and self.special[other]:
                self._set(name, self.special[other])
        processor = section(tokenizer, "post_processor")
        processors = objects(processor.get("processors")) if "processors" in processor else None
        for step in [processor] if processors is None else processors:
            match step.get("type"):
                case "ByteLevel":
                    self.add.setdefault("bos", False)
                    self.add.setdefault("eos", False)
                case "RobertaProcessing":
                    self.add |= {"bos": True, "eos": True, "sep": True}
                    for name, other in (("cls", "bos"), ("sep", "eos")):
                        if not self.special[name]:
                            given: Any = step.get(name)
                            is_own = isinstance(given, list) and given
                            self._set(name, given[0] if is_own else self.special[other])
                case "TemplateProcessing":
                    self._read_steps(step)

    def token(self, name: str) -> str | None:
        return content((self.config or {}).get(f"{name}_token"))

    def _set(self, name: str, value: Any, given_as: str | None = None) -> None:
        """Let a special token be this one, where there is a config to say so."""
        if self.config:
            self.config[f"{given_as or name}_token"] = value
            if given_as is None:
                self.special[name] = value

    def _read_steps(self, step: Mapping[str, Any]) -> None:
        single, pair = objects(step.get("single")), objects(step.get("pair"))
        first = last = None
        if len(single) > 1:
            first, last = _special_at(single[0]), _special_at(single[-1])
        if first:
            if not self.config:
                self.special["bos"] = first
            elif not self._is(first, "bos", "cls"):
                for name in ("bos", "cls"):
                    if not self.special[name]:
                        self._set(name, first)
            self.add["bos"] = self._is(first, "bos", "cls")
        if last:
            if not self.config:
                self.special["eos"] = last
            elif not self._is(last, "eos"):
                spare = next((name for name in ("eot", "eom") if name not in self.names), None)
                if spare:
                    self.names.append(spare)
                    self._set("eos", self.special["eos"], given_as=spare)
                self._set("eos", last)
            self.add["eos"] = True
        if pair:
            self._read_pair(pair, first, last)

    def _is(self, text: str, *names: str) -> bool:
        return any(self.special[name] == text for name in names)

    def _read_pair(self, pair: list[Any], first: str | None, last: str | None) -> None:
        """Find out whether there is a separator between A and B."""
        start = 1 if first and _special_at(pair[0]) == first else 0
        stop = len(pair) - 1 if last and _special_at(pair[-1]) == last else len(pair)
        pair = pair[start:stop]
        ends = [section(step, "Sequence").get("id") for step in (*pair[:1], *pair[-1:])]
        between = pair[1:-1]
        if ends != ["A", "B"] or not between:
            return
        separator = _special_at(between[0])
        adds = bool(separator and self._is(separator, "sep", "eos") and not last)
        if len(between) == 2 and (second := _special_at(between[1])):
            adds |= self._is(second, "sep", "eos")
        self.add["sep"] = adds
        if adds and not self.special["sep"]:
            self._set("sep", self.special["eos"], given_as="sep")


def _special_at(step: Mapping[str, Any]) -> str | None:
    given = section(step, "SpecialToken").get("id")
    return given if isinstance(given, str) else None


def _normalizer(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for step in flat(given, "normalizers"):
        match step.get("type"):
            case "Lowercase":
                found["lowercase"] = True
            case "StripAccents":
                found["strip_accents"] = True
            case "BertNormalizer":
                for key in ("lowercase", "strip_accents"):
                    if key in step:
                        found[key] = step[key]
    order = ("lowercase", "strip_accents")
    told_bools = {key: found[key] for key in order if isinstance(found.get(key), bool)}
    return {f"tokenizer.ggml.normalizer.{key}": value for key, value in told_bools.items()}
