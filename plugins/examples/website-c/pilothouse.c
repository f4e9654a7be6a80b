// JSON, and what else needs no host.
#include "pilothouse.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void *ph_allocate(size_t size) {
    void *memory = calloc(1, size > 0 ? size : 1);
    ph_assert(memory != NULL, "out of memory");
    return memory;
}

void ph_own(ph_outcome *outcome, const char *object) {
    ph_own_with(outcome, object, 0);
}

void ph_own_as(ph_outcome *outcome, const char *object, unsigned lifecycle, const char *options) {
    ph_own_with(outcome, object, lifecycle);
    outcome->options[outcome->owned_count - 1] = options;
}

void ph_own_with(ph_outcome *outcome, const char *object, unsigned lifecycle) {
    ph_assert(outcome->owned_count < PH_MOST, "too many objects");
    outcome->lifecycles[outcome->owned_count] = lifecycle;
    outcome->owned[outcome->owned_count++] = object;
}

void ph_refuse(ph_verdict *verdict, ph_wrong wrong, const char *path, const char *message) {
    ph_assert(verdict->error_count < PH_MOST, "too many errors");
    verdict->errors[verdict->error_count++] = (ph_field_error){wrong, path, message};
}

void ph_warn(ph_verdict *verdict, const char *warning) {
    ph_assert(verdict->warning_count < PH_MOST, "too many warnings");
    verdict->warnings[verdict->warning_count++] = warning;
}

// Reading.

typedef enum { OTHER, INTEGER, STRING, ARRAY, OBJECT } ph_type;

struct ph_value {
    ph_type type;
    // A member's name.
    const char *name;
    const char *string;
    long long integer;
    // As it was read.
    const char *text;
    size_t length;
    // Members or elements.
    ph_value *first;
    ph_value *next;
};

#define MOST_LEVELS 100

typedef struct {
    const char *at;
    const char *end;
    int level;
} parser;

static ph_value *value_of(parser *parser);

static void skip_space(parser *parser) {
    while (parser->at < parser->end && strchr(" \t\r\n", *parser->at) != NULL && *parser->at != '\0') {
        parser->at++;
    }
}

static bool take(parser *parser, char expected) {
    skip_space(parser);
    if (parser->at < parser->end && *parser->at == expected) {
        parser->at++;
        return true;
    }
    return false;
}

// Four hexadecimal digits; -1 if they are none.
static long hexadecimal(parser *parser) {
    long value = 0;
    for (int digit = 0; digit < 4; digit++) {
        if (parser->at >= parser->end) {
            return -1;
        }
        char c = *parser->at++;
        int number = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (number < 0) {
            return -1;
        }
        value = value * 16 + number;
    }
    return value;
}

static char *put_utf8(char *out, long code) {
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | (code >> 6));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | (code >> 12));
        *out++ = (char)(0x80 | ((code >> 6) & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | (code >> 18));
        *out++ = (char)(0x80 | ((code >> 12) & 0x3F));
        *out++ = (char)(0x80 | ((code >> 6) & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

// A string after its opening quote; NULL if it does not end. What is unescaped is never longer.
static const char *string_of(parser *parser) {
    const char *end = parser->at;
    while (end < parser->end && *end != '"') {
        end += *end == '\\' ? 2 : 1;
    }
    if (end >= parser->end) {
        return NULL;
    }
    char *text = ph_allocate((size_t)(end - parser->at) + 1);
    char *out = text;
    while (*parser->at != '"') {
        char c = *parser->at++;
        if (c != '\\') {
            *out++ = c;
            continue;
        }
        c = *parser->at++;
        const char *escaped = strchr("bfnrt", c);
        if (c == 'u') {
            long code = hexadecimal(parser);
            if (code >= 0xD800 && code < 0xDC00 && parser->end - parser->at > 6 && parser->at[0] == '\\' && parser->at[1] == 'u') {
                parser->at += 2;
                long low = hexadecimal(parser);
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
            if (code < 0) {
                return NULL;
            }
            out = put_utf8(out, code);
        } else {
            *out++ = escaped != NULL ? "\b\f\n\r\t"[escaped - "bfnrt"] : c;
        }
    }
    parser->at++;
    return text;
}

static ph_value *children_of(parser *parser, ph_value *value, bool are_members) {
    ph_value **last = &value->first;
    char close = are_members ? '}' : ']';
    if (take(parser, close)) {
        return value;
    }
    do {
        const char *name = NULL;
        if (are_members && (!take(parser, '"') || (name = string_of(parser)) == NULL || !take(parser, ':'))) {
            return NULL;
        }
        ph_value *child = value_of(parser);
        if (child == NULL) {
            return NULL;
        }
        child->name = name;
        *last = child;
        last = &child->next;
    } while (take(parser, ','));
    return take(parser, close) ? value : NULL;
}

static ph_value *bare_value_of(parser *parser) {
    ph_value *value = ph_allocate(sizeof *value);
    if (take(parser, '"')) {
        value->type = STRING;
        value->string = string_of(parser);
        return value->string != NULL ? value : NULL;
    }
    bool is_object = take(parser, '{');
    if (is_object || take(parser, '[')) {
        value->type = is_object ? OBJECT : ARRAY;
        value = ++parser->level < MOST_LEVELS ? children_of(parser, value, is_object) : NULL;
        parser->level--;
        return value;
    }
    // A number, true, false or null.
    const char *start = parser->at;
    while (parser->at < parser->end && strchr(",]} \t\r\n", *parser->at) == NULL) {
        parser->at++;
    }
    bool is_negative = start < parser->at && *start == '-';
    const char *digits = start + is_negative;
    value->type = digits < parser->at ? INTEGER : OTHER;
    for (; digits < parser->at; digits++) {
        if (*digits < '0' || *digits > '9' || value->integer > 100000000000000000) {
            value->type = OTHER;
            break;
        }
        value->integer = value->integer * 10 + (*digits - '0');
    }
    value->integer *= is_negative ? -1 : 1;
    return start < parser->at ? value : NULL;
}

static ph_value *value_of(parser *parser) {
    skip_space(parser);
    const char *start = parser->at;
    ph_value *value = bare_value_of(parser);
    if (value != NULL) {
        value->text = start;
        value->length = (size_t)(parser->at - start);
    }
    return value;
}

const ph_value *ph_parse(const char *text, size_t length) {
    parser parser = {text, text + length, 0};
    const ph_value *value = value_of(&parser);
    skip_space(&parser);
    return parser.at == parser.end ? value : NULL;
}

// The first member of a path, and where the rest begins; NULL after the last one.
static const char *member_of(const char *path, const char **name, size_t *length) {
    bool is_quoted = path[0] == '[' && path[1] == '"';
    *name = is_quoted ? path + 2 : path;
    const char *end = is_quoted ? strstr(*name, "\"]") : path + strcspn(path, ".[");
    ph_assert(end != NULL, "a name in a path does not end");
    *length = (size_t)(end - *name);
    end += is_quoted ? 2 : 0;
    return *end == '\0' ? NULL : end + (*end == '.');
}

static bool has_name(const ph_value *member, const char *name, size_t length) {
    return strlen(member->name) == length && memcmp(member->name, name, length) == 0;
}

static const ph_value *members_of(const ph_value *value) {
    return value != NULL && value->type == OBJECT ? value->first : NULL;
}

const ph_value *ph_get(const ph_value *value, const char *path) {
    while (value != NULL && path != NULL) {
        const char *name;
        size_t length;
        path = member_of(path, &name, &length);
        value = members_of(value);
        while (value != NULL && !has_name(value, name, length)) {
            value = value->next;
        }
    }
    return value;
}

const char *ph_string(const ph_value *value, const char *otherwise) {
    return value != NULL && value->type == STRING ? value->string : otherwise;
}

long long ph_integer(const ph_value *value, long long otherwise) {
    return value != NULL && value->type == INTEGER ? value->integer : otherwise;
}

bool ph_is_controlled_by(const ph_value *object, const ph_value *owner) {
    const char *uid = ph_string(ph_get(owner, "metadata.uid"), "");
    const ph_value *references = ph_get(object, "metadata.ownerReferences");
    const ph_value *reference = references != NULL && references->type == ARRAY ? references->first : NULL;
    for (; reference != NULL; reference = reference->next) {
        const ph_value *controller = ph_get(reference, "controller");
        bool is_controller = controller != NULL && strcmp(ph_json(controller), "true") == 0;
        if (is_controller && strcmp(ph_string(ph_get(reference, "uid"), ""), uid) == 0) {
            return true;
        }
    }
    return false;
}

char *ph_json(const ph_value *value) {
    char *text = ph_allocate(value->length + 1);
    memcpy(text, value->text, value->length);
    return text;
}

// Writing.

typedef struct {
    char *text;
    size_t length;
    size_t capacity;
} buffer;

static void put(buffer *buffer, char c) {
    if (buffer->length + 1 >= buffer->capacity) {
        size_t capacity = buffer->capacity * 2 + 256;
        char *text = ph_allocate(capacity);
        if (buffer->length > 0) {
            memcpy(text, buffer->text, buffer->length);
        }
        buffer->text = text;
        buffer->capacity = capacity;
    }
    buffer->text[buffer->length++] = c;
    buffer->text[buffer->length] = '\0';
}

static void put_text(buffer *buffer, const char *text) {
    while (*text != '\0') {
        put(buffer, *text++);
    }
}

static void put_quoted(buffer *buffer, const char *text) {
    put(buffer, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            put(buffer, '\\');
            put(buffer, (char)c);
        } else if (c == '\n') {
            put_text(buffer, "\\n");
        } else if (c < 0x20) {
            put_text(buffer, "\\u00");
            put(buffer, "0123456789abcdef"[c >> 4]);
            put(buffer, "0123456789abcdef"[c & 15]);
        } else {
            put(buffer, (char)c);
        }
    }
    put(buffer, '"');
}

static void put_integer(buffer *buffer, long long number) {
    char digits[24];
    size_t count = 0;
    unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) {
        put(buffer, '-');
    }
    while (count > 0) {
        put(buffer, digits[--count]);
    }
}

static void put_with(buffer *buffer, const ph_value *value, const char *path, const char *json) {
    const char *name;
    size_t length;
    const char *rest = member_of(path, &name, &length);
    const ph_value *replaced = NULL;
    put(buffer, '{');
    for (const ph_value *member = members_of(value); member != NULL; member = member->next) {
        if (has_name(member, name, length)) {
            replaced = member;
            continue;
        }
        put_quoted(buffer, member->name);
        put_text(buffer, ": ");
        put_text(buffer, ph_json(member));
        put_text(buffer, ", ");
    }
    char *copy = ph_allocate(length + 1);
    memcpy(copy, name, length);
    put_quoted(buffer, copy);
    put_text(buffer, ": ");
    if (rest != NULL) {
        put_with(buffer, replaced, rest, json);
    } else {
        put_text(buffer, json);
    }
    put(buffer, '}');
}

char *ph_set(const ph_value *value, const char *path, const char *json) {
    buffer buffer = {0};
    put_with(&buffer, value, path, json);
    return buffer.text;
}

char *ph_format(const char *template, ...) {
    buffer buffer = {0};
    va_list arguments;
    va_start(arguments, template);
    for (; *template != '\0'; template++) {
        if (*template != '%') {
            put(&buffer, *template == '\'' ? '"' : *template);
            continue;
        }
        switch (*++template) {
        case 's':
            put_quoted(&buffer, va_arg(arguments, const char *));
            break;
        case 'd':
            put_integer(&buffer, va_arg(arguments, long long));
            break;
        case 'j':
            put_text(&buffer, va_arg(arguments, const char *));
            break;
        default:
            ph_panic(__FILE__, __LINE__, "a template has an unknown conversion");
        }
    }
    va_end(arguments);
    return buffer.text;
}

char *ph_text(const char *template, ...) {
    buffer buffer = {0};
    va_list arguments;
    va_start(arguments, template);
    for (; *template != '\0'; template++) {
        if (*template != '%') {
            put(&buffer, *template);
            continue;
        }
        switch (*++template) {
        case 's':
            put_text(&buffer, va_arg(arguments, const char *));
            break;
        case 'q':
            put_quoted(&buffer, va_arg(arguments, const char *));
            break;
        case 'd':
            put_integer(&buffer, va_arg(arguments, long long));
            break;
        default:
            ph_panic(__FILE__, __LINE__, "a template has an unknown conversion");
        }
    }
    va_end(arguments);
    return buffer.text;
}

// A list of JSON texts.
static char *listed(char *list, const char *item) {
    return list == NULL ? ph_text("%s", item) : ph_text("%s, %s", list, item);
}

static const char *truth(bool value) {
    return value ? "true" : "false";
}

const char *ph_manifest(const ph_plugin *plugin) {
    char *crds = NULL, *controllers = NULL;
    for (size_t index = 0; index < plugin->crd_count; index++) {
        crds = listed(crds, ph_format("%s", plugin->crds[index]));
    }
    for (size_t index = 0; index < plugin->controller_count; index++) {
        const ph_controller *it = plugin->controllers[index];
        const char *kind = ph_format("{'group': %s, 'version': %s, 'kind': %s}", it->group, it->version, it->kind);
        const char *finalizer = it->finalizer != NULL ? ph_format("%s", it->finalizer) : "null";
        controllers = listed(controllers, ph_format("{'name': %s, 'kind': %j, 'fields': %j, 'touches': %j,"
                                                    " 'finalizer': %j, 'defaulter': %j, 'validator': %j, 'options': %j}",
                                                    it->name, kind, ph_format(it->fields), ph_format(it->touches), finalizer,
                                                    truth(it->apply_defaults != NULL), truth(it->validate != NULL),
                                                    ph_format(it->options != NULL ? it->options : "[]")));
    }
    return ph_format("{'name': %s, 'version': %s, 'description': %s, 'crds': [%j], 'controllers': [%j]}", plugin->name,
                     plugin->version, plugin->description, crds != NULL ? crds : "", controllers != NULL ? controllers : "");
}

const ph_controller *ph_controller_of(const ph_plugin *plugin, const char *api_version, const char *kind) {
    for (size_t index = 0; index < plugin->controller_count; index++) {
        const ph_controller *it = plugin->controllers[index];
        const char *own = it->group[0] != '\0' ? ph_text("%s/%s", it->group, it->version) : it->version;
        if (strcmp(it->kind, kind) == 0 && strcmp(own, api_version) == 0) {
            return it;
        }
    }
    ph_panic(__FILE__, __LINE__, ph_text("there is no controller for %s %s", api_version, kind));
}
