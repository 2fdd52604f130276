/*
 * schema.h - the subset of JSON Schema that tools use, and errors that a model can act on.
 *
 * Keywords: type (one or a list), properties, required, additionalProperties (false or a schema),
 *   enum, items, minimum, maximum, minLength, maxLength, minItems, maxItems; title, description,
 *   default and examples are ignored. Any other keyword makes schema_check fail, at start-up.
 * Values: null counts as absent. "30" is a number and "true" a boolean where the schema wants one;
 *   5.0 is an integer. Lengths count bytes.
 */
#ifndef SMCP_FCGI_SCHEMA_H
#define SMCP_FCGI_SCHEMA_H

#include "common/base.h"
#include "common/err.h"
#include "common/json.h"
#include "fcgi/args.h"

/* Is this a schema that schema_validate understands in full? The root must be an object. */
int schema_check(const struct json *schema, struct err *e) _check_;

/* ERR_INVALID "invalid_argument": names the argument, the value and what is accepted. */
int schema_validate(const struct json *schema, const struct args *args, struct err *e) _check_;

/* "exec(command, sandbox?, timeout?)" */
void schema_usage(const struct json *schema, const char *tool, struct buf *out);

#endif
