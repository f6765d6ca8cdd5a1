"""How clients reach a cluster: its kubeconfig, and whether a program says that it is ready."""

import base64
import http.client
import json
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from testbed.layout import Layout, Plan
from testbed.programs import LOOPBACK


def write_kubeconfig(layout: Layout, plan: Plan) -> None:
    """The kubeconfig of the cluster's administrator. It carries the token, so only its owner may read it. JSON is YAML,
    and can be read again without a YAML parser.
    """
    ca = (layout.certs / "apiserver.crt").read_bytes()
    token = layout.tokens.read_text(encoding="ascii").split(",", 1)[0]
    name = plan.options.name
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": f"https://{LOOPBACK}:{plan.ports['kube-apiserver']}",
                    "certificate-authority-data": base64.b64encode(ca).decode("ascii"),
                },
            }
        ],
        "users": [{"name": f"{name}-admin", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-admin"}}],
    }
    unfinished = layout.kubeconfig.with_suffix(".unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        json.dump(said, file, indent=1)
    unfinished.rename(layout.kubeconfig)


def certificate(layout: Layout, program: str) -> Path:
    """Where a program keeps the certificate that it made for itself, with its issuer's."""
    return layout.certs / "apiserver.crt" if program == "kube-apiserver" else layout.certs / program / f"{program}.crt"


def answers(url: str, ca: Path) -> bool:
    """Whether a GET without credentials is answered with 200; False also while there is nobody to answer."""
    address = urlsplit(url)
    connection: http.client.HTTPConnection
    try:
        if address.scheme == "https":
            tls = ssl.create_default_context(cafile=str(ca))
            connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=5, context=tls)
        else:
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    except OSError:  # the certificate is not written yet, or not whole
        return False
    try:
        connection.request("GET", address.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
