#include "jobs-runner/queries.h"

// clang-format off
const struct db_query runner_queries[Q_COUNT] = {
[Q_REQUEST_QUEUED] = {"request_queued",
    "SELECT id, kind, args, reply, created_at, deadline FROM requests WHERE state = 0 ORDER BY id LIMIT 256"},
[Q_REQUEST_TAKEN] = {"request_taken",
    "SELECT id, kind, args, reply, created_at, deadline, run_id, boot FROM requests WHERE state = 1 ORDER BY id"},
[Q_REQUEST_TAKE] = {"request_take",
    "UPDATE requests SET state = 1, run_id = ?, boot = ? WHERE id = ?"},
[Q_REQUEST_SET_BOOT] = {"request_set_boot",
    "UPDATE requests SET boot = ? WHERE id = ?"},
[Q_REQUEST_ANSWER] = {"request_answer",
    "UPDATE requests SET state = 2, ok = ?, result = ? WHERE id = ?"},
[Q_REQUEST_PROGRESS] = {"request_progress",
    "UPDATE requests SET progress = ? WHERE id = ? AND state < 2"},
[Q_REQUEST_PURGE] = {"request_purge",
    "DELETE FROM requests WHERE deadline < ? AND state <> 1"},
[Q_RUN_INSERT] = {"run_insert",
    "INSERT INTO runs (id, sandbox, generation, boot, job, name, caller_id, command, status, started_at, timeout_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?)"},
[Q_RUN_BEGIN] = {"run_begin",
    "UPDATE runs SET generation = ?, boot = ? WHERE id = ?"},
[Q_RUN_JOB] = {"run_job",
    "UPDATE runs SET job = 1, log = 1 WHERE id = ? AND ended_at IS NULL"},
[Q_RUN_INSERT_ENDED] = {"run_insert_ended",
    "INSERT INTO runs (id, sandbox, generation, job, command, status, exit_code, signal, oom_killed, left_running,"
    " reason, started_at, ended_at, duration_us, timeout_ms, log)"
    " VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
[Q_RUN_END] = {"run_end",
    "UPDATE runs SET status = ?, exit_code = ?, signal = ?, oom_killed = ?, left_running = ?, reason = ?,"
    " ended_at = ?, duration_us = ?, log = ?, result = ? WHERE id = ?"},
[Q_RUN_BY_ID] = {"run_by_id",
    "SELECT sandbox, status, left_running FROM runs WHERE id = ?"},
[Q_RUN_BY_CALLER] = {"run_by_caller",
    "SELECT id, command FROM runs WHERE sandbox = ? AND caller_id = ?"},
[Q_RUN_RECOVER] = {"run_recover",
    "INSERT OR IGNORE INTO runs (id, sandbox, generation, job, command, status, exit_code, left_running, oom_killed,"
    " reason, started_at, ended_at, duration_us, timeout_ms, log)"
    " SELECT run_id, json_extract(args, '$.sandbox'), 0, 0, substr(json_extract(args, '$.command'), 1, 16384),"
    " json_extract(result, '$.status'), json_extract(result, '$.exit_code'),"
    " coalesce(json_extract(result, '$.left_running'), 0), coalesce(json_extract(result, '$.oom_killed'), 0),"
    " json_extract(result, '$.reason'), created_at, created_at + json_extract(result, '$.duration_ms'),"
    " 1000 * json_extract(result, '$.duration_ms'), json_extract(args, '$.timeout_ms'), 1"
    " FROM requests WHERE state = 2 AND ok = 1 AND kind = 'exec' AND run_id IS NOT NULL"
    " AND json_extract(result, '$.status') <> 'running'"},
[Q_RUN_LIVE] = {"run_live",
    "SELECT id, sandbox, generation, boot, job, caller_id, started_at, timeout_ms, status, command, name"
    " FROM runs WHERE ended_at IS NULL ORDER BY id"},
[Q_RUN_RESULT] = {"run_result",
    "SELECT sandbox, status, job, result FROM runs WHERE id = ?"},
[Q_RUN_FREE_ID] = {"run_free_id",
    "UPDATE runs SET caller_id = NULL WHERE id = ?"},
[Q_RUN_FREE_IDS] = {"run_free_ids",
    "UPDATE runs SET caller_id = NULL WHERE sandbox = ? AND caller_id IS NOT NULL"},
[Q_RUN_LAST_USE] = {"run_last_use",
    "SELECT max(started_at, coalesce(ended_at, 0)) FROM runs WHERE sandbox = ? ORDER BY id DESC LIMIT 1"},
[Q_RUN_OLD] = {"run_old",
    "SELECT id, log FROM runs WHERE id < ? AND ended_at < ? LIMIT 500"},
[Q_RUN_DELETE] = {"run_delete",
    "DELETE FROM runs WHERE id = ?"},
[Q_SANDBOX_ALL] = {"sandbox_all",
    "SELECT name, state, container, generation, image, cpus, memory, pids, network, runtime, env, parent,"
    " created_at, last_used, expires_at, ttl_seconds FROM sandboxes"},
[Q_SANDBOX_INSERT] = {"sandbox_insert",
    "INSERT INTO sandboxes (name, state, generation, image, cpus, memory, pids, network, runtime, env, parent,"
    " created_at, last_used, expires_at, ttl_seconds) VALUES (?, 'creating', 0, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?)"},
[Q_SANDBOX_STATE] = {"sandbox_state",
    "UPDATE sandboxes SET state = ? WHERE name = ?"},
[Q_SANDBOX_CONTAINER] = {"sandbox_container",
    "UPDATE sandboxes SET container = ?, generation = ?, state = ? WHERE name = ?"},
[Q_SANDBOX_TOUCH] = {"sandbox_touch",
    "UPDATE sandboxes SET last_used = ? WHERE name = ?"},
[Q_SANDBOX_LAST_USED] = {"sandbox_last_used",
    "SELECT last_used, expires_at FROM sandboxes WHERE name = ?"},
[Q_SANDBOX_DELETE] = {"sandbox_delete",
    "DELETE FROM sandboxes WHERE name = ?"},
};
// clang-format on
