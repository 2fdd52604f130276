-- The first schema. Times are milliseconds since 1970 unless the name says otherwise.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What the responder asks of the runner. The row is the truth, the doorbell only wakes.
CREATE TABLE requests (
    id          INTEGER PRIMARY KEY,        -- the caller's: time, then chance; never used twice
    kind        TEXT NOT NULL,
    args        TEXT NOT NULL,              -- JSON object
    state       INTEGER NOT NULL DEFAULT 0, -- 0 queued, 1 taken, 2 answered
    reply       TEXT NOT NULL,              -- name of the FIFO in RUN_DIR/reply to ring
    created_at  INTEGER NOT NULL,
    deadline    INTEGER NOT NULL,           -- the caller waits no longer than this
    run_id      TEXT,                       -- set before the run that it starts is started
    boot        TEXT,                       -- the agent's boot id, before that agent gets the run
    ok          INTEGER,                    -- answered: 1 result, 0 error
    result      TEXT,                       -- JSON object
    progress    TEXT                        -- JSON object, the newest one
) STRICT;

CREATE TABLE sandboxes (
    name          TEXT PRIMARY KEY,
    state         TEXT NOT NULL,            -- creating, running, stopped, removing
    container     TEXT,                     -- Docker's id
    generation    INTEGER NOT NULL,         -- goes up each time a container is made
    image         TEXT NOT NULL,
    cpus          REAL NOT NULL,
    memory        INTEGER NOT NULL,         -- bytes
    pids          INTEGER NOT NULL,
    network       TEXT NOT NULL,
    runtime       TEXT NOT NULL,
    env           TEXT NOT NULL,            -- JSON object of strings
    parent        TEXT,
    created_at    INTEGER NOT NULL,
    last_used     INTEGER NOT NULL,
    expires_at    INTEGER,
    ttl_seconds   INTEGER
) STRICT, WITHOUT ROWID;

-- Every command that was run: exec, jobs, and with them the audit log. A plain exec gets its row
-- when it ends or becomes a job; until then its request is the record.
CREATE TABLE runs (
    id          TEXT PRIMARY KEY,           -- ULID: sorts by time
    sandbox     TEXT NOT NULL,
    generation  INTEGER NOT NULL,
    boot        TEXT,                       -- the agent's boot id, once it has the run
    stream      INTEGER,                    -- the agent's number for the run
    job         INTEGER NOT NULL,           -- 1: started as, or has become, a job
    name        TEXT,
    caller_id   TEXT,                       -- run_id chosen by the caller
    command     TEXT NOT NULL,              -- at most 16 KiB of it
    status      TEXT NOT NULL,              -- queued, running, finished, stopped, timeout, lost
    exit_code   INTEGER,
    signal      INTEGER,
    oom_killed  INTEGER NOT NULL DEFAULT 0,
    left_running INTEGER NOT NULL DEFAULT 0,
    reason      TEXT,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    duration_us INTEGER,
    timeout_ms  INTEGER NOT NULL,
    log         INTEGER NOT NULL DEFAULT 0, -- 1: a log file exists
    result      TEXT                        -- the whole result, kept when the caller chose the id
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_sandbox ON runs (sandbox, id);
CREATE INDEX runs_live ON runs (sandbox) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX runs_caller ON runs (sandbox, caller_id) WHERE caller_id IS NOT NULL;
