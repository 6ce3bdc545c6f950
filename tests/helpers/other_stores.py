"""Google's and Azure's stores: moto behind Google's API, and Azurite."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import obstore
import urllib3

from anamnesis.sources.bucket import store_of
from helpers.s3_server import Proxy, s3_server

AZURITE = os.environ.get("ANAMNESIS_AZURITE", "")  # the folder that npm has installed it in
_ACCOUNT = "devstoreaccount1"  # Azurite's own, and its key
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SIGNED = (
    "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request,"
    " SignedHeaders=host, Signature=x"
)


def as_s3(headers: Any) -> None:
    """Make headers of Google's API, which is S3's but for some names, those of S3's."""
    del headers["Authorization"]  # or there are two
    headers["Authorization"] = _SIGNED
    if headers.get("x-goog-if-generation-match") == "0":
        headers["If-None-Match"] = "*"


@contextmanager
def google(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server; yield the environment by which a client finds it."""
    with s3_server() as (endpoint, proxy):
        urllib3.request("PUT", f"{endpoint}/outputs")
        proxy.translate = as_s3
        yield {"GOOGLE_SERVICE_ACCOUNT": str(_account(folder, proxy))}


def _account(folder: Path, proxy: Proxy) -> Path:
    told = {"gcs_base_url": proxy.endpoint, "disable_oauth": True}
    empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    path = folder / "account.json"
    path.write_text(json.dumps(told | empty))
    return path


@contextmanager
def azure(folder: Path) -> Iterator[dict[str, str]]:
    """Run Azurite; yield the environment by which a client finds it."""
    program = f"{AZURITE}/node_modules/azurite/dist/src/blob/main.js"
    words = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    node = shutil.which("node") or "node"
    line = [node, program, *words, "--blobPort", "0"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = next(line for line in server.stdout if "listens on" in line)
            where = said.split()[-1]
            _make_container(where)
            yield {
                "AZURE_STORAGE_USE_EMULATOR": "true",
                "AZURITE_BLOB_STORAGE_URL": where,
                "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            }
        finally:
            server.terminate()


def _make_container(where: str) -> None:
    headers = {"x-ms-date": formatdate(time.time(), usegmt=True), "x-ms-version": "2021-08-06"}
    told = "\n".join(f"{name}:{value}" for name, value in headers.items())
    text = f"PUT{chr(10) * 12}{told}\n/{_ACCOUNT}/{_ACCOUNT}/outputs\nrestype:container"
    mac = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(mac).decode()}"
    url = f"{where}/{_ACCOUNT}/outputs?restype=container"
    assert urllib3.request("PUT", url, headers=headers, body=b"").status == 201


def objects(url: str) -> dict[str, bytes]:
    """Return the objects of a bucket."""
    store, _ = store_of(url)
    names = [one["path"] for some in obstore.list(store) for one in some]
    return {name: bytes(obstore.get(store, name).bytes()) for name in names}
