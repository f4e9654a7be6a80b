// A small helper: JSON values in, JSON texts out. wit/plugin.wit says what each member means, and so does
// docs/contract.md of Pilothouse.
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
// The value at a path of members, such as "spec.host" or "metadata.labels[\"a.b/c\"]"; NULL if there is none.
const ph_value *ph_get(const ph_value *value, const char *path);
// The text of a string; `otherwise` for anything else.
const char *ph_string(const ph_value *value, const char *otherwise);
// An integer; `otherwise` for anything else.
long long ph_integer(const ph_value *value, long long otherwise);

// The JSON text of a value, as it was read.
char *ph_json(const ph_value *value);
// The JSON text of a value in which the member at a path is this JSON text. Objects that are missing on the way are made.
char *ph_set(const ph_value *value, const char *path, const char *json);

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
    // The exceptions to the life of each, as ph_own_with takes them.
    unsigned lifecycles[PH_MOST];
    // The options of each as JSON, as ph_own_as takes them; NULL for those of its lifecycle.
    const char *options[PH_MOST];
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
    // Of a finalizer: the object may not go yet, and the outcome says what should still exist.
    PH_PENDING,
} ph_result;

// Exceptions to the life of an owned object.
typedef enum {
    // Created when absent, then never changed.
    PH_CREATE_ONLY = 1,
    // Left in place when it is no longer desired, and when the primary goes.
    PH_KEEP = 2,
    // Deleted and created again where a changed field is immutable.
    PH_RECREATE = 4,
    // Deleted and created again whenever something else is desired than before; the controller lists it in its options.
    PH_REPLACE = 8,
} ph_lifecycle;

void ph_own(ph_outcome *outcome, const char *object);
// The same with exceptions: ph_own_with(outcome, object, PH_KEEP | PH_RECREATE).
void ph_own_with(ph_outcome *outcome, const char *object, unsigned lifecycle);
// The same with all options as JSON: ph_own_as(outcome, object, 0, ph_format("{'propagation': 'Orphan', 'adopt': 'IfUnowned',
// 'yield': ['.spec.replicas'], 'after': [{'apiVersion': 'v1', 'kind': 'Secret', 'name': 'key'}], 'once': 'v2'}")). The controller lists
// them in its options.
void ph_own_as(ph_outcome *outcome, const char *object, unsigned lifecycle, const char *options);

// Why an object is reviewed. The host does not ask about deletions today.
typedef enum { PH_CREATE, PH_UPDATE, PH_DELETE, PH_RECONCILE } ph_phase;

// What the host calls a defaulter and a validator with.
typedef struct {
    ph_phase phase;
    // NULL only when it is deleted.
    const ph_value *object;
    // NULL unless it is updated or deleted.
    const ph_value *old_object;
    const ph_value *configuration;
    // Of the object's metadata.
    const char *name;
    const char *namespace;
    // Who makes the request; NULL before a reconcile.
    const char *username;
    const char **groups;
    size_t group_count;
    // Whether nothing will be stored.
    bool dry_run;
} ph_review;

// How a field is wrong, with the words of the API server.
typedef enum { PH_REQUIRED, PH_DUPLICATE, PH_FORBIDDEN, PH_NOT_FOUND, PH_INVALID } ph_wrong;

typedef struct {
    ph_wrong wrong;
    const char *path;
    const char *message;
} ph_field_error;

// What is said of an object. It is refused if there are errors.
typedef struct {
    const char *warnings[PH_MOST];
    size_t warning_count;
    ph_field_error errors[PH_MOST];
    size_t error_count;
} ph_verdict;

// A path is such as "spec.ports[0].name", and "" the object as a whole. The host adds the path and the value to the message.
void ph_refuse(ph_verdict *verdict, ph_wrong wrong, const char *path, const char *message);
void ph_warn(ph_verdict *verdict, const char *warning);

// What a plugin does for one kind.
typedef struct {
    const char *name;
    const char *group;
    const char *version;
    const char *kind;
    // The fields of the object that the functions see beside its metadata, and what is read and owned: JSON, in which ' stands
    // for ". docs/reference/manifest.md of Pilothouse has the members.
    const char *fields;
    const char *touches;
    ph_result (*reconcile)(const ph_request *request, ph_outcome *outcome);
    // The finalizer's name, for example "example.com/website", and its function. PH_DONE: the object may go. NULL for none.
    const char *finalizer;
    ph_result (*finalize)(const ph_request *request, ph_outcome *outcome);
    // The JSON text of the object with defaults filled in, where the same again must change nothing. NULL for none.
    const char *(*apply_defaults)(const ph_review *review, ph_verdict *verdict);
    // What refuses an object or is warned of. NULL for none.
    void (*validate)(const ph_review *review, ph_verdict *verdict);
    // The options that desired objects may have: JSON, such as "['replace']". NULL for none.
    const char *options;
} ph_controller;

typedef struct {
    const char *name;
    const char *version;
    const char *description;
    // As YAML.
    const char *const *crds;
    size_t crd_count;
    const ph_controller *const *controllers;
    size_t controller_count;
} ph_plugin;

// The plugin, which component.c exports: a project defines it.
extern const ph_plugin ph_operator;

// The manifest as JSON.
const char *ph_manifest(const ph_plugin *plugin);
// The controller for a kind; an API version is "apps/v1" for example. A call for a kind that has none panics.
const ph_controller *ph_controller_of(const ph_plugin *plugin, const char *api_version, const char *kind);

// The host's cache. Each read is a dependency: when it would answer otherwise, the object is reconciled again. NULL if there is
// no such object.
const ph_value *ph_read(const char *group, const char *version, const char *kind, const char *namespace, const char *name);

// Whether an object that was read belongs to this primary.
bool ph_is_controlled_by(const ph_value *object, const ph_value *owner);

typedef enum { PH_TRACE, PH_DEBUG, PH_INFO, PH_WARN, PH_ERROR } ph_level;
void ph_log(ph_level level, const char *message);

// Ends the call: the message is logged as an error, and is part of the failure that the host reports.
_Noreturn void ph_panic(const char *file, int line, const char *message);
#define ph_assert(condition, message) ((condition) ? (void)0 : ph_panic(__FILE__, __LINE__, message))

// How the manifest's and the primary's texts are written where C has no memory left.
void *ph_allocate(size_t size);

#endif
