"""Chat templates: of a folder as keys of a GGUF, and back."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_letters, digits
from typing import Any

from anamnesis.architectures.tokenizers.folder import CONFIG, Folder, objects
from anamnesis.architectures.tokenizers.tokens import check_text

TEMPLATE_KEY = "tokenizer.chat_template"
_NAME_CHARS = frozenset(ascii_letters + digits)


def chat_templates(folder: Folder) -> dict[str, Any]:
    """Return one template, or several by their names, of which `default` has no name in a GGUF."""
    config = folder.json(CONFIG)
    if not config:
        return {}
    given = config["chat_template"] if "chat_template" in config else _beside(folder)
    if isinstance(given, str):
        check_text(CONFIG, [given])
        return {TEMPLATE_KEY: given} if given else {}
    found: dict[str, Any] = {}
    names: dict[str, None] = {}
    default = None
    for choice in objects(given):
        name, template = choice.get("name"), choice.get("template")
        if not isinstance(name, str) or not isinstance(template, str):
            continue
        check_text(CONFIG, [template])
        name = "".join(char if char in _NAME_CHARS else "_" for char in name)
        if name == "default":
            default = template
        elif name:
            names[name] = None
            if template:  # a GGUF of the reference has no empty strings
                found[f"{TEMPLATE_KEY}.{name}"] = template
    if names:
        found[f"{TEMPLATE_KEY}s"] = list(names)
    if default:
        found[TEMPLATE_KEY] = default
    return found


def _beside(folder: Folder) -> Any:
    """Return the templates that are files of their own."""
    template = folder.text("chat_template.jinja")
    if template is None:
        return (folder.json("chat_template.json") or {}).get("chat_template")
    others = folder.names("additional_chat_templates", ".jinja")
    if not others:
        return template
    named: list[dict[str, Any]] = [{"name": "default", "template": template}]
    for path in others:
        name = path.rpartition("/")[2].removesuffix(".jinja")
        named.append({"name": name, "template": folder.text(path)})
    return named


def stored_templates(metadata: Mapping[str, Any]) -> Any:
    """Return the chat template, or all of them by their names."""
    default = metadata.get(TEMPLATE_KEY)
    named = []
    for key in metadata:
        name = key.removeprefix(f"{TEMPLATE_KEY}.")
        if name != key and isinstance(metadata[key], str):
            named.append({"name": name, "template": metadata[key]})
    if not named:
        return default if isinstance(default, str) else None
    if isinstance(default, str):
        named.insert(0, {"name": "default", "template": default})
    return named
