// The component model's canonical ABI for the world `plugin`: what the component imports and exports. Only for WebAssembly.
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
    answer.manifest = string_of(ph_manifest());
    return &answer;
}

EXPORT("pilothouse:plugin/reconciler@0.1.0#reconcile")
void *reconcile(const char *object, size_t object_length, const char *configuration, size_t configuration_length,
                uint32_t attempt, const char *extensions, size_t extensions_length) {
    (void)extensions;
    (void)extensions_length;
    static reconciled answer;
    ph_request request = {
        .object = ph_parse(object, object_length),
        .configuration = ph_parse(configuration, configuration_length),
        .attempt = attempt,
    };
    ph_assert(request.object != NULL, "the host gave an object that is not JSON");
    request.name = ph_string(ph_get(request.object, "metadata.name"), "");
    request.namespace = ph_string(ph_get(request.object, "metadata.namespace"), "");
    ph_outcome outcome = {0};
    ph_result result = ph_reconcile(&request, &outcome);
    if (result != PH_DONE) {
        answer.is_error = true;
        answer.failure.variant = result == PH_PERMANENT;
        answer.failure.message = string_of(outcome.failure != NULL ? outcome.failure : "it gave no reason");
        return &answer;
    }
    desired *items = ph_allocate(outcome.owned_count * sizeof *items);
    for (size_t index = 0; index < outcome.owned_count; index++) {
        items[index].object = string_of(outcome.owned[index]);
        items[index].options = string_of("{}");
    }
    answer.outcome.desired = (list){items, outcome.owned_count};
    if (outcome.status != NULL) {
        answer.outcome.status = (option_string){true, string_of(outcome.status)};
    }
    if (outcome.requeue_after > 0) {
        answer.outcome.requeue_after = (option_u64){true, outcome.requeue_after};
    }
    return &answer;
}

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
