"""Defines the tables of a store, in terms that every database understands."""

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    literal_column,
)

SCHEMA_VERSION = 2

metadata = MetaData()

trials = Table(
    "trials",
    metadata,
    # Order of arrival; breaks ties between trials that started at the same time.
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("run", Text, nullable=False),
    Column("case_id", Text, nullable=False),
    # The kernel, for programs the testcase: the name by which people search for trials.
    Column("label", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("side", Text, nullable=False),
    # As JSON. Rows of version 1 have none: there only the record has it.
    Column("config", Text),
    Column("target", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("control", Boolean, nullable=False),
    Column("reused", Boolean, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("median_ns", Float),
    Column("run_s", Float),
    Column("build_key", Text, nullable=False),
    Column("golden_key", Text, nullable=False),
    Column("run_key", Text, nullable=False),
    Column("measurement_key", Text, nullable=False),
    # The whole Trial as JSON. The other columns repeat the parts that are searched for.
    Column("record", LargeBinary, nullable=False),
)
Index("trials_by_start", trials.c.started_at)
Index("trials_by_run", trials.c.run, trials.c.started_at)
Index("trials_by_kernel", trials.c.label, trials.c.started_at)
Index("trials_by_measurement", trials.c.measurement_key, trials.c.started_at)
failed_builds = Index("trials_by_failed_build", trials.c.build_key, trials.c.started_at)
is_unbuilt = trials.c.run_key == literal_column("''")
"""The rows that ``failed_builds`` indexes: a build that succeeded may have thousands of trials."""

# The suite's part of a trial: no other trial pays for it. Its order is that in which histories are read,
# so that those of 1,000,000 trials are read without their records.
suite_trials = Table(
    "suite_trials",
    metadata,
    Column("case_id", Text, primary_key=True),
    Column("started_at", Float, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("testcase", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("run_s", Float),
    Column("reused", Boolean, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("suite", Text, nullable=False),
    Column("run_key", Text, nullable=False),
)
Index(
    "suite_trials_by_run_key",
    suite_trials.c.run_key,
    suite_trials.c.started_at,
    suite_trials.c.number,
)
