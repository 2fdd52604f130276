/*
 * settings.h - everything that can be configured: one table of SMCP_* variables.
 *
 * The table in settings.c gives parsing, checking, `--check-config`, `.env.example` and
 * docs/configuration.md. A variable in the process environment wins over the same one in the env
 * file. A wrong value is an error that names variable, value and what is accepted.
 * Ownership: strings belong to the struct; settings_release frees them.
 */
#ifndef SMCP_SETTINGS_H
#define SMCP_SETTINGS_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

struct settings {
    /* who may call, and under which address */
    char *token;      /* empty until settings_load_token */
    char *token_file; /* empty: "token" beside the state database */
    char *signing_key;
    char *public_base_url;
    char *allowed_origins; /* comma separated, besides loopback origins */
    char *allowed_hosts;   /* comma separated, besides loopback and the public address */
    char *oauth_issuer;    /* empty: the token alone */
    char *oauth_audience;  /* empty: the public address and /mcp */
    char *oauth_scopes;    /* separated by blanks */
    /* where to listen */
    char *host;
    int64_t port;
    /* where things are kept */
    char *data_dir;
    char *state_db;
    char *run_dir;
    char *agent; /* empty: beside the running program */
    /* sandboxes */
    char *docker_socket;
    char *base_image;
    char *container_prefix;
    char *network;
    char *runtime;
    int64_t mem_limit; /* bytes */
    double cpus;
    int64_t pids_limit;
    int64_t max_sandboxes;
    /* life and time, seconds */
    int64_t idle_stop;
    int64_t idle_remove;
    int64_t gc_interval;
    int64_t exec_timeout;
    int64_t exec_wait;
    int64_t job_timeout;
    int64_t job_log_retention;
    int64_t url_ttl;
    /* sizes, bytes */
    int64_t job_log_max;
    int64_t max_output; /* a stream, inline in a result */
    int64_t read_text_max;
    int64_t max_body;
    /* tools and workers */
    char *toolsets;
    int64_t workers_min;
    int64_t workers_max;
    int64_t log_level;
    /* what is said of SMCP_ names in the env file that are no settings; NULL: none */
    char *unknown;
};

/*
 * Fill from the environment and, when env_file is not NULL, that file. With env_file NULL the
 * variable SMCP_ENV_FILE may name one. On failure `ret` is released.
 */
int settings_load(struct settings *ret, const char *env_file, struct err *e) _check_;
void settings_release(struct settings *s);
#define _cleanup_settings_ _cleanup_(settings_release)

/* Read the token from its file if SMCP_TOKEN does not give it; fails when there is none. */
int settings_load_token(struct settings *s, struct err *e) _check_;

/* Print every variable with its value in force ("--check-config"); secrets only as "(set)". */
void settings_print(const struct settings *s, struct buf *out);

/* The text of .env.example, and of the table in docs/configuration.md. */
void settings_env_example(struct buf *out);
void settings_markdown(struct buf *out);

/* An https address, or an http one of this machine; without user, query and fragment. */
bool settings_url_ok(const char *url);

/* "2g", "512M", "1048576" to bytes; "1.5" to a number of cores. 0 or -1. */
int settings_parse_bytes(const char *text, int64_t *ret);
int settings_parse_cpus(const char *text, double *ret);

#endif
