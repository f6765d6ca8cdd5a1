"""NCCL: topology files (read, check, write), the link and path model, predicted graphs."""

from rackyard.nccl.diff import diff
from rackyard.nccl.generate import generate
from rackyard.nccl.lint import lint
from rackyard.nccl.predict import predict
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused

__all__ = ["TopologyRefused", "Version", "diff", "generate", "lint", "parse", "predict"]
