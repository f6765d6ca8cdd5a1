"""Rackyard: the yard master for NVL72 racks."""

from rackyard.worker import report_checkpoint, report_step, resume_step

__all__ = ["__version__", "report_checkpoint", "report_step", "resume_step"]

__version__ = "0.1.0"
