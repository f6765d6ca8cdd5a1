"""What readers, the merge and the comparison with a design report: rules that the audit runs no check for."""

from dataclasses import dataclass

from rackyard.findings import Severity


@dataclass(frozen=True, slots=True)
class Noted:
    """A finding that comes with the facts; `severity` is the highest that it has."""

    id: str
    severity: Severity
    what: str


NOTED: tuple[Noted, ...] = (
    Noted("fabric/contradiction", Severity.WARNING, "captures agree with one another"),
    Noted("fabric/unreadable", Severity.WARNING, "every capture can be read"),
    Noted("fabric/capture-cut", Severity.WARNING, "no capture ends in the middle"),
    Noted("fabric/block-twice", Severity.WARNING, "a fabric scan lists every node once"),
    Noted("fabric/scan-incomplete", Severity.WARNING, "the fabric scan ran without complaints"),
    Noted("fabric/cable-unclear", Severity.WARNING, "every link names both of its ends"),
    Noted("fabric/gpu-unreachable", Severity.ERROR, "nvidia-smi reaches every GPU"),
    Noted("fabric/gpu-nameless", Severity.WARNING, "every GPU has an index, a UUID or a PCI address"),
    Noted("fabric/nvml-silent", Severity.ERROR, "NVML answers for every GPU"),
    Noted("fabric/nvml-unasked", Severity.WARNING, "NVML could be asked where there is a driver"),
    Noted("fabric/nvlink-manager", Severity.WARNING, "the NVLink controller answered"),
    Noted("fabric/nvlink-unplaced", Severity.INFO, "NVLink ports belong to devices that are listed"),
    Noted("fabric/design", Severity.ERROR, "the site is as designed (with a design)"),
)
