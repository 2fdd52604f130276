#include "fcgi/queries.h"

// clang-format off
const struct db_query queries[Q_COUNT] = {
    [Q_PING] = {"ping", "SELECT count(*) FROM meta"},
    [Q_REQUEST_ADD] = {"request_add",
        "INSERT OR IGNORE INTO requests(id, kind, args, reply, created_at, deadline) VALUES(?,?,?,?,?,?)"},
    [Q_REQUEST_READ] = {"request_read",
        "SELECT state, ok, result, progress, run_id FROM requests WHERE id=?"},
    [Q_REQUEST_DELETE] = {"request_delete", "DELETE FROM requests WHERE id=?"},
    [Q_REQUEST_WITHDRAW] = {"request_withdraw", "DELETE FROM requests WHERE id=? AND state=0"},
    [Q_SANDBOXES] = {"sandboxes",
        "SELECT s.name, s.state, s.image, s.created_at, s.last_used, s.expires_at, s.parent,"
        " s.cpus, s.memory, s.pids, s.network,"
        " (SELECT count(*) FROM runs r WHERE r.sandbox=s.name AND r.ended_at IS NULL AND r.job=1),"
        " (SELECT max(r.started_at, ifnull(r.ended_at, 0)) FROM runs r WHERE r.sandbox=s.name"
        "  ORDER BY r.id DESC LIMIT 1)"
        " FROM sandboxes s ORDER BY s.name"},
    [Q_SANDBOX] = {"sandbox", "SELECT state, last_used FROM sandboxes WHERE name=?"},
    [Q_SANDBOX_TOUCH] = {"sandbox_touch", "UPDATE sandboxes SET last_used=? WHERE name=?"},
    [Q_RUN] = {"run",
        "SELECT sandbox, name, command, status, exit_code, signal, oom_killed, left_running,"
        " reason, started_at, ended_at, duration_us, log, timeout_ms FROM runs WHERE id=?"},
};
// clang-format on
