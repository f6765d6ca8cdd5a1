"""The fabric health mask of NVML, taken apart into named conditions and put together again.

Layout: `NVML_GPU_FABRIC_HEALTH_MASK_*` of nvml.h. Each condition is two bits, where 0 says that the driver does not
report it; only `incorrect_configuration` takes four. So a healthy GPU reads 0x1aa (0xaa on drivers without the
configuration field), not 0.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

NOT_SUPPORTED = "not supported"

_FLAG = {1: "TRUE", 2: "FALSE"}
_CONFIGURATION = {
    1: "none",
    2: "incorrect system guid",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient nvlinks",
    6: "incompatible gpu firmware",
    7: "invalid location",
    8: "gpu state invalid",
}
_MANAGER = {1: "connected", 2: "disconnected"}

# name: shift, field, what the values mean, the value that is good
_CONDITIONS: dict[str, tuple[int, int, dict[int, str], str]] = {
    "degraded_bandwidth": (0, 0x3, _FLAG, "FALSE"),
    "route_recovery": (2, 0x3, _FLAG, "FALSE"),
    "route_unhealthy": (4, 0x3, _FLAG, "FALSE"),
    "access_timeout_recovery": (6, 0x3, _FLAG, "FALSE"),
    "incorrect_configuration": (8, 0xF, _CONFIGURATION, "none"),
    "partition_assigned": (12, 0x3, _FLAG, "TRUE"),
    "fabric_manager": (14, 0x3, _MANAGER, "connected"),
}

UNKNOWN_CONFIGURATION = 0xF << 8
"""What `mask_of_words` packs for a configuration fault that it has no number for. NVML itself never says 15."""

# How `nvidia-smi -q` calls the rows of its Health block (letters only), and what it writes in them.
_ROWS = {
    "bandwidth": "degraded_bandwidth",
    "routerecoveryinprogress": "route_recovery",
    "routerecovery": "route_recovery",
    "routeunhealthy": "route_unhealthy",
    "accesstimeoutrecovery": "access_timeout_recovery",
    "incorrectconfiguration": "incorrect_configuration",
    "partitionassigned": "partition_assigned",
}
_FLAG_WORDS = {"degraded": 1, "full": 2, "true": 1, "false": 2, "yes": 1, "no": 2}
_CONFIGURATION_WORDS = {
    "none": 1,
    "incorrectsysguid": 2,
    "incorrectsystemguid": 2,
    "incorrectchassissn": 3,
    "incorrectchassisserialnumber": 3,
    "nopartition": 4,
    "insufficientnvlinks": 5,
    "incompatiblegpufw": 6,
    "incompatiblegpufirmware": 6,
    "invalidlocation": 7,
    "gpustateinvalid": 8,
    "invalidgpustate": 8,
}
_OTHER = re.compile(r"[^a-z0-9]+")


def letters(text: str) -> str:
    """Lower case, letters and digits only: how names are compared across forms and driver generations."""
    return _OTHER.sub("", text.lower())


def health_row(name: str) -> str | None:
    """The condition that a row of the Health block stands for; None when it is none of them."""
    return _ROWS.get(letters(name))


def decode(mask: int) -> dict[str, str]:
    """Every condition by name: TRUE, FALSE, a configuration's or connection's words, or `not supported`.

    A value that nvml.h does not define reads `unknown (n)`.
    """
    named = {}
    for name, (shift, field, words, _) in _CONDITIONS.items():
        value = mask >> shift & field
        named[name] = words.get(value, f"unknown ({value})") if value else NOT_SUPPORTED
    return named


def encode(conditions: Mapping[str, str]) -> int:
    """The mask that says this; conditions left out are not supported. ValueError for an unknown name or word."""
    mask = 0
    for name, word in conditions.items():
        if name not in _CONDITIONS:
            raise ValueError(f"no health condition is called {name}")
        if word == NOT_SUPPORTED:
            continue
        shift, _, words, _ = _CONDITIONS[name]
        values = [value for value, known in words.items() if known == word]
        if not values:
            raise ValueError(f"{name} is never {word}")
        mask |= values[0] << shift
    return mask


def faults(mask: int) -> tuple[str, ...]:
    """What is wrong, in words: `degraded_bandwidth`, `incorrect_configuration: no partition`. Empty when nothing is."""
    wrong = []
    for name, word in decode(mask).items():
        good = _CONDITIONS[name][3]
        if word not in (good, NOT_SUPPORTED):
            wrong.append(name if word == "TRUE" else f"{name}: {word}")
    return tuple(wrong)


def healthy(mask: int) -> bool | None:
    """Whether the mask reports no fault; None when it reports nothing at all."""
    return not faults(mask) if mask & 0xFFFF else None


@lru_cache(maxsize=256)
def summary_good(summary: str | None) -> bool | None:
    """Whether the health summary says healthy; None when it says nothing."""
    word = letters(summary or "")
    return None if word in ("", "na", "notsupported") else word == "healthy"


@lru_cache(maxsize=256)
def status_good(status: str | None) -> bool | None:
    """Whether the status of the registration with the fabric (an nvmlReturn_t in words) is success; None when nobody
    said.
    """
    word = letters(status or "")
    return None if word in ("", "na", "none", "unknown") else word in ("success", "nvmlsuccess", "0")


def mask_of_words(rows: Mapping[str, str]) -> int | None:
    """The mask that a Health block of `nvidia-smi -q` stands for: rows by their names, values as printed without N/A.

    None when no row says anything. A word for a configuration fault that is not known still counts as a fault.
    """
    mask = 0
    for row, word in rows.items():
        condition = health_row(row)
        if condition is None:
            continue
        shift = _CONDITIONS[condition][0]
        if condition == "incorrect_configuration":
            value = _CONFIGURATION_WORDS.get(letters(word), UNKNOWN_CONFIGURATION >> 8)
        else:
            value = _FLAG_WORDS.get(letters(word), 0)
        mask |= value << shift
    return mask or None
