// The component model's canonical ABI for the world `plugin`: what the component imports and exports. Only for WebAssembly. With
// PH_FINALIZER and PH_ADMISSION it also exports these interfaces, for a world that has them.
#include "pilothouse.h"

#include <stdlib.h>
#include <string.h>

#define IMPORT(interface, function) \
    __attribute__((import_module("pilothouse:plugin/" interface "@0.1.0"), import_name(function)))
#define EXPORT(name) __attribute__((export_name(name)))

typedef struct {
    const char *text;
    size_t length;
} string;

typedef struct {
    bool is_some;
    string string;
} option_string;

typedef struct {
    string object;
    uint8_t ownership;
    uint8_t lifecycle;
    string options;
} desired;

typedef struct {
    const void *items;
    size_t count;
} list;

typedef struct {
    bool is_some;
    uint64_t number;
} option_u64;

typedef struct {
    list desired;
    option_string status;
    list conditions;
    list events;
    option_u64 requeue_after;
    option_string extensions;
} outcome;

typedef struct {
    uint8_t variant;
    string message;
} failure;

typedef struct {
    bool is_error;
    union {
        outcome outcome;
        failure failure;
    };
} reconciled;

_Static_assert(sizeof(desired) == 20 && sizeof(outcome) == 72 && sizeof(reconciled) == 80, "as the canonical ABI has it");

IMPORT("log", "log")
void host_log(uint32_t level, const char *message, size_t length, const void *fields, size_t count);

IMPORT("cluster", "get")
void host_get(const char *group, size_t group_length, const char *version, size_t version_length, const char *kind,
              size_t kind_length, uint32_t has_namespace, const char *namespace, size_t namespace_length, const char *name,
              size_t name_length, option_string *answer);

EXPORT("cabi_realloc")
void *cabi_realloc(void *old, size_t old_size, size_t alignment, size_t size) {
    (void)old_size;
    (void)alignment;
    void *memory = realloc(old, size > 0 ? size : 1);
    ph_assert(memory != NULL, "out of memory");
    return memory;
}

static string string_of(const char *text) {
    return (string){text, strlen(text)};
}

EXPORT("pilothouse:plugin/manifest@0.1.0#describe")
void *describe(uint32_t has_configuration, const char *configuration, size_t length) {
    (void)has_configuration;
    (void)configuration;
    (void)length;
    static struct {
        bool is_error;
        string manifest;
    } answer;
    answer.manifest = string_of(ph_manifest(&ph_operator));
    return &answer;
}

static ph_request request_of(string object, string configuration, uint32_t attempt) {
    ph_request request = {
        .object = ph_parse(object.text, object.length),
        .configuration = ph_parse(configuration.text, configuration.length),
        .attempt = attempt,
    };
    ph_assert(request.object != NULL, "the host gave an object that is not JSON");
    request.name = ph_string(ph_get(request.object, "metadata.name"), "");
    request.namespace = ph_string(ph_get(request.object, "metadata.namespace"), "");
    return request;
}

static const ph_controller *controller_of(const ph_request *request) {
    const char *api_version = ph_string(ph_get(request->object, "apiVersion"), "");
    return ph_controller_of(&ph_operator, api_version, ph_string(ph_get(request->object, "kind"), ""));
}

static failure failure_of(ph_result result, const ph_outcome *given) {
    const char *message = given->failure != NULL ? given->failure : "it gave no reason";
    return (failure){result != PH_TRANSIENT, string_of(message)};
}

static outcome outcome_of(const ph_outcome *given) {
    outcome outcome = {0};
    desired *items = ph_allocate(given->owned_count * sizeof *items);
    for (size_t index = 0; index < given->owned_count; index++) {
        items[index].object = string_of(given->owned[index]);
        // The flags of the contract are the first three.
        items[index].lifecycle = given->lifecycles[index] & (PH_CREATE_ONLY | PH_KEEP | PH_RECREATE);
        const char *replace = given->lifecycles[index] & PH_REPLACE ? "{\"replace\":true}" : "{}";
        items[index].options = string_of(given->options[index] != NULL ? given->options[index] : replace);
    }
    outcome.desired = (list){items, given->owned_count};
    if (given->status != NULL) {
        outcome.status = (option_string){true, string_of(given->status)};
    }
    if (given->requeue_after > 0) {
        outcome.requeue_after = (option_u64){true, given->requeue_after};
    }
    return outcome;
}

EXPORT("pilothouse:plugin/reconciler@0.1.0#reconcile")
void *reconcile(const char *object, size_t object_length, const char *configuration, size_t configuration_length,
                uint32_t attempt, const char *extensions, size_t extensions_length) {
    (void)extensions;
    (void)extensions_length;
    static reconciled answer;
    ph_request request =
        request_of((string){object, object_length}, (string){configuration, configuration_length}, attempt);
    ph_outcome outcome = {0};
    ph_result result = controller_of(&request)->reconcile(&request, &outcome);
    if (result == PH_DONE) {
        answer.outcome = outcome_of(&outcome);
    } else {
        answer.is_error = true;
        answer.failure = failure_of(result, &outcome);
    }
    return &answer;
}

#ifdef PH_FINALIZER
typedef struct {
    bool is_error;
    union {
        struct {
            bool is_pending;
            outcome outcome;
        };
        failure failure;
    };
} finalized;

_Static_assert(sizeof(finalized) == 88, "as the canonical ABI has it");

EXPORT("pilothouse:plugin/finalizer@0.1.0#finalize")
void *finalize(const char *object, size_t object_length, const char *configuration, size_t configuration_length,
               uint32_t attempt, const char *extensions, size_t extensions_length) {
    (void)extensions;
    (void)extensions_length;
    static finalized answer;
    ph_request request =
        request_of((string){object, object_length}, (string){configuration, configuration_length}, attempt);
    ph_outcome outcome = {0};
    const ph_controller *controller = controller_of(&request);
    ph_assert(controller->finalize != NULL, "the controller has no finalizer");
    ph_result result = controller->finalize(&request, &outcome);
    if (result == PH_PENDING) {
        answer.is_pending = true;
        answer.outcome = outcome_of(&outcome);
    } else if (result != PH_DONE) {
        answer.is_error = true;
        answer.failure = failure_of(result, &outcome);
    }
    return &answer;
}
#endif

#ifdef PH_ADMISSION
typedef struct {
    uint8_t phase;
    string group;
    string version;
    string kind;
    option_string object;
    option_string old_object;
    string configuration;
    bool has_user_info;
    string username;
    list groups;
    bool dry_run;
    string extensions;
} review;

typedef struct {
    uint8_t kind;
    string path;
    string message;
} field_error;

typedef struct {
    bool is_error;
    union {
        string object;
        list items;
    };
} reviewed;

_Static_assert(sizeof(review) == 92 && sizeof(field_error) == 20 && sizeof(reviewed) == 12, "as the canonical ABI has it");

// A copy that ends with a zero.
static const char *text_of(string string) {
    char *text = ph_allocate(string.length + 1);
    memcpy(text, string.text, string.length);
    return text;
}

static const ph_value *value_of(option_string text) {
    return text.is_some ? ph_parse(text.string.text, text.string.length) : NULL;
}

static ph_review review_of(const review *given) {
    ph_review review = {
        .phase = given->phase,
        .object = value_of(given->object),
        .old_object = value_of(given->old_object),
        .configuration = ph_parse(given->configuration.text, given->configuration.length),
        .dry_run = given->dry_run,
    };
    review.name = ph_string(ph_get(review.object, "metadata.name"), "");
    review.namespace = ph_string(ph_get(review.object, "metadata.namespace"), "");
    if (given->has_user_info) {
        const string *groups = given->groups.items;
        review.username = text_of(given->username);
        review.group_count = given->groups.count;
        review.groups = ph_allocate(review.group_count * sizeof *review.groups);
        for (size_t index = 0; index < review.group_count; index++) {
            review.groups[index] = text_of(groups[index]);
        }
    }
    return review;
}

static const ph_controller *reviewer_of(const review *given) {
    const char *group = text_of(given->group), *version = text_of(given->version);
    const char *api_version = group[0] != '\0' ? ph_text("%s/%s", group, version) : version;
    return ph_controller_of(&ph_operator, api_version, text_of(given->kind));
}

// Whether there are errors, which are then the answer.
static bool is_refused(reviewed *answer, const ph_verdict *verdict) {
    field_error *errors = ph_allocate(verdict->error_count * sizeof *errors);
    for (size_t index = 0; index < verdict->error_count; index++) {
        ph_field_error error = verdict->errors[index];
        errors[index] = (field_error){error.wrong, string_of(error.path), string_of(error.message)};
    }
    answer->is_error = verdict->error_count > 0;
    answer->items = (list){errors, verdict->error_count};
    return answer->is_error;
}

EXPORT("pilothouse:plugin/defaulter@0.1.0#apply-defaults")
void *apply_defaults(const review *given) {
    static reviewed answer;
    ph_review review = review_of(given);
    ph_verdict verdict = {0};
    const ph_controller *controller = reviewer_of(given);
    ph_assert(controller->apply_defaults != NULL, "the controller has no defaulter");
    const char *object = controller->apply_defaults(&review, &verdict);
    if (!is_refused(&answer, &verdict)) {
        answer.object = string_of(object);
    }
    return &answer;
}

EXPORT("pilothouse:plugin/validator@0.1.0#validate")
void *validate(const review *given) {
    static reviewed answer;
    ph_review review = review_of(given);
    ph_verdict verdict = {0};
    const ph_controller *controller = reviewer_of(given);
    ph_assert(controller->validate != NULL, "the controller has no validator");
    controller->validate(&review, &verdict);
    if (!is_refused(&answer, &verdict)) {
        string *warnings = ph_allocate(verdict.warning_count * sizeof *warnings);
        for (size_t index = 0; index < verdict.warning_count; index++) {
            warnings[index] = string_of(verdict.warnings[index]);
        }
        answer.items = (list){warnings, verdict.warning_count};
    }
    return &answer;
}
#endif

const ph_value *ph_read(const char *group, const char *version, const char *kind, const char *namespace, const char *name) {
    option_string answer = {0};
    host_get(group, strlen(group), version, strlen(version), kind, strlen(kind), namespace[0] != '\0', namespace,
             strlen(namespace), name, strlen(name), &answer);
    return answer.is_some ? ph_parse(answer.string.text, answer.string.length) : NULL;
}

void ph_log(ph_level level, const char *message) {
    host_log(level, message, strlen(message), NULL, 0);
}

_Noreturn void ph_panic(const char *file, int line, const char *message) {
    static bool has_panicked;
    // The text needs memory, of which there may be none.
    if (!has_panicked) {
        has_panicked = true;
        ph_log(PH_ERROR, ph_text("%s (%s:%d)", message, file, (long long)line));
    } else {
        ph_log(PH_ERROR, message);
    }
    __builtin_trap();
}
