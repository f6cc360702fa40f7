"""The Spark driver: what the network recorded, read in bulk (`docs/pipeline.md`)."""

from __future__ import annotations

from postroad.pipeline.errors import (
    DamagedFileError,
    EmptyRangeError,
    JavaMissingError,
    MissingTableError,
    PipelineError,
)
from postroad.pipeline.job_run import JobOptions, JobReport, JobRun, SparkJob, run_job
from postroad.pipeline.session import DEFAULT_MASTER, check_java, session

__all__ = [
    "DEFAULT_MASTER",
    "DamagedFileError",
    "EmptyRangeError",
    "JavaMissingError",
    "JobOptions",
    "JobReport",
    "JobRun",
    "MissingTableError",
    "PipelineError",
    "SparkJob",
    "check_java",
    "run_job",
    "session",
]
