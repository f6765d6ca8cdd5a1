"""Custom resource definitions, as the modules ship them, put into a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.api import YAML, Api, Refused, until

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def create(api: Api, folder: Path) -> list[str]:
    """Create the definitions in `folder`'s files; their names. The API server reads YAML, so nothing is parsed here."""
    files = [file.read_bytes() for file in sorted(folder.glob("*.yaml"))]
    return [made["metadata"]["name"] for made in api.many(lambda text: api.post(PATH, text, YAML), files)]


def established(api: Api, names: list[str], timeout: float = 60.0) -> None:
    """Wait until objects of these definitions can be made. NotYet when that takes too long."""

    def check() -> bool:
        served = {found["metadata"]["name"] for found in api.get(PATH)["items"] if _served(found)}
        return served.issuperset(names)

    until("custom resource definitions established", check, timeout)


def namespace(api: Api, name: str) -> None:
    """Make a namespace, unless it is there."""
    try:
        api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    except Refused as error:
        if error.code != 409:
            raise


def _served(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
