"""Reports that people keep: one self-contained HTML file, nothing fetched."""

from rackyard.report.incident import Extra, render

__all__ = ["Extra", "render"]
