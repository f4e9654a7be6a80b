// A small helper: JSON values in, JSON texts out. wit/plugin.wit and docs/contract.md of Pilothouse say what each member means.
//
// Nothing is freed: each call of a plugin has memory of its own.
#ifndef PILOTHOUSE_H
#define PILOTHOUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A JSON value. Every function takes NULL for a value that is not there.
typedef struct ph_value ph_value;

// Reads a JSON document; NULL if it is none.
const ph_value *ph_parse(const char *text, size_t length);
// The value at a path of members, such as "spec.host"; NULL if there is none.
const ph_value *ph_get(const ph_value *value, const char *path);
// The text of a string; `otherwise` for anything else.
const char *ph_string(const ph_value *value, const char *otherwise);
// An integer; `otherwise` for anything else.
long long ph_integer(const ph_value *value, long long otherwise);

// The JSON text of a value, as it was read.
char *ph_json(const ph_value *value);

// Writes JSON after a template, in which ' stands for ", %s for a string, which is quoted and escaped, %d for a long long, and
// %j for a JSON text as it is: ph_format("{'image': %s, 'replicas': %d}", image, replicas).
char *ph_format(const char *template, ...);
// Writes text after a template, in which %s stands for a text as it is and %q for a quoted one.
char *ph_text(const char *template, ...);

// What the host calls a plugin with.
typedef struct {
    const ph_value *object;
    const ph_value *configuration;
    uint32_t attempt;
    // Of the object's metadata.
    const char *name;
    const char *namespace;
} ph_request;

#define PH_MOST 32

// What should exist. What was desired before and is not here any more is deleted.
typedef struct {
    // JSON texts of objects that belong to the primary.
    const char *owned[PH_MOST];
    size_t owned_count;
    // The JSON text of the status; NULL for none.
    const char *status;
    // Milliseconds after which the object is reconciled again in any case; 0 for never.
    uint64_t requeue_after;
    // Why there is no outcome.
    const char *failure;
} ph_outcome;

typedef enum {
    PH_DONE,
    // A failure that is retried with back-off.
    PH_TRANSIENT,
    // A failure that is retried when the object, the configuration or something that was read changes.
    PH_PERMANENT,
} ph_result;

void ph_own(ph_outcome *outcome, const char *object);

// What a plugin implements: its manifest as JSON, and its reconcile.
const char *ph_manifest(void);
ph_result ph_reconcile(const ph_request *request, ph_outcome *outcome);

// The host's cache. Each read is a dependency: when it would answer otherwise, the object is reconciled again. NULL if there is
// no such object.
const ph_value *ph_read(const char *group, const char *version, const char *kind, const char *namespace, const char *name);

typedef enum { PH_TRACE, PH_DEBUG, PH_INFO, PH_WARN, PH_ERROR } ph_level;
void ph_log(ph_level level, const char *message);

// Ends the call: the message is logged as an error, and is part of the failure that the host reports.
_Noreturn void ph_panic(const char *file, int line, const char *message);
#define ph_assert(condition, message) ((condition) ? (void)0 : ph_panic(__FILE__, __LINE__, message))

// How the manifest's and the primary's texts are written where C has no memory left.
void *ph_allocate(size_t size);

#endif
