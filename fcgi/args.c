#include "fcgi/args.h"

#include <math.h>

const char *args_name(const struct args *a, const char *key)
{
    for (size_t i = 0; a->renames && i < RENAMES_MAX && a->renames[i].old; i++)
        if (streq(a->renames[i].old, key))
            return a->renames[i].now;
    return key;
}

static const struct json *present(const struct json *j)
{
    return j && json_type(j) != JSON_NULL ? j : NULL;
}

const struct json *args_get(const struct args *a, const char *name)
{
    const struct json *j = present(json_get(a->obj, name));
    for (size_t i = 0; !j && a->renames && i < RENAMES_MAX && a->renames[i].old; i++)
        if (streq(a->renames[i].now, name))
            j = present(json_get(a->obj, a->renames[i].old));
    return j;
}

bool args_has(const struct args *a, const char *name)
{
    return args_get(a, name) != NULL;
}

const char *args_string(const struct args *a, const char *name, const char *def)
{
    const struct json *j = args_get(a, name);
    return j && json_type(j) == JSON_STRING ? json_string(j) : def;
}

static const char *digits(const char *s)
{
    return s + strspn(s, "0123456789");
}

bool args_parse_number(const char *s, double *ret)
{
    const char *p = *s == '-' ? s + 1 : s, *end = digits(p);
    if (end == p || end - p > 40)
        return false;
    if (*end == '.') {
        p = end + 1;
        end = digits(p);
        if (end == p)
            return false;
    }
    if (*end == 'e' || *end == 'E') {
        p = end + 1 + (end[1] == '+' || end[1] == '-');
        end = digits(p);
        if (end == p)
            return false;
    }
    double v = strtod(s, NULL);
    if (*end || !isfinite(v))
        return false;
    *ret = v;
    return true;
}

double args_number(const struct args *a, const char *name, double def)
{
    const struct json *j = args_get(a, name);
    double v = def;
    if (j && json_type(j) == JSON_NUMBER)
        return json_number(j);
    if (j && json_type(j) == JSON_STRING && args_parse_number(json_string(j), &v))
        return v;
    return def;
}

int64_t args_int(const struct args *a, const char *name, int64_t def)
{
    double v = args_number(a, name, (double)def);
    return fabs(v) <= 9007199254740992.0 ? (int64_t)v : def;
}

bool args_bool(const struct args *a, const char *name, bool def)
{
    const struct json *j = args_get(a, name);
    if (j && json_type(j) == JSON_BOOL)
        return json_bool(j);
    if (j && json_type(j) == JSON_STRING)
        return streq(json_string(j), "true");
    return def;
}
