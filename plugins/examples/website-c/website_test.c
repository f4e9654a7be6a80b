// Runs natively: make test.
#include "pilothouse.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The host, as far as the tests need one.
static const char *live;

const ph_value *ph_read(const char *group, const char *version, const char *kind, const char *namespace, const char *name) {
    assert(strcmp(group, "apps") == 0 && strcmp(version, "v1") == 0 && strcmp(kind, "Deployment") == 0);
    assert(strcmp(namespace, "shop") == 0 && strcmp(name, "blog") == 0);
    return live != NULL ? ph_parse(live, strlen(live)) : NULL;
}

void ph_log(ph_level level, const char *message) {
    (void)level;
    fprintf(stderr, "%s\n", message);
}

_Noreturn void ph_panic(const char *file, int line, const char *message) {
    fprintf(stderr, "%s (%s:%d)\n", message, file, line);
    abort();
}

static const ph_value *parsed(const char *text) {
    const ph_value *value = ph_parse(text, strlen(text));
    assert(value != NULL);
    return value;
}

static const char *text_at(const char *text, const char *path) {
    return ph_string(ph_get(parsed(text), path), "(none)");
}

static ph_result reconcile(const char *spec, ph_outcome *outcome) {
    char *object = ph_format("{'metadata': {'name': 'blog', 'namespace': 'shop'}, 'spec': %j}", spec);
    ph_request request = {.object = parsed(object), .name = "blog", .namespace = "shop"};
    *outcome = (ph_outcome){0};
    return ph_controller_of(&ph_operator, "example.com/v1", "Website")->reconcile(&request, outcome);
}

static void without_a_host_there_is_no_ingress(void) {
    ph_outcome outcome;
    assert(reconcile("{\"image\": \"nginx:1.27\", \"replicas\": 2, \"port\": 8080}", &outcome) == PH_DONE);
    assert(outcome.owned_count == 2);
    assert(strcmp(text_at(outcome.owned[0], "kind"), "Deployment") == 0);
    assert(ph_integer(ph_get(parsed(outcome.owned[0]), "spec.replicas"), 0) == 2);
    assert(strcmp(text_at(outcome.owned[1], "kind"), "Service") == 0);
    assert(strcmp(text_at(outcome.status, "url"), "http://blog.shop.svc") == 0);
}

static void with_a_host_there_is_an_ingress(void) {
    ph_outcome outcome;
    assert(reconcile("{\"image\": \"nginx\", \"host\": \"blog.example.com\"}", &outcome) == PH_DONE);
    assert(outcome.owned_count == 3);
    assert(strcmp(text_at(outcome.owned[2], "kind"), "Ingress") == 0);
    assert(strcmp(text_at(outcome.status, "url"), "http://blog.example.com") == 0);
}

static void the_status_counts_the_ready_pods_of_the_live_deployment(void) {
    ph_outcome outcome;
    live = "{\"status\": {\"readyReplicas\": 2}}";
    assert(reconcile("{\"image\": \"nginx\"}", &outcome) == PH_DONE);
    assert(ph_integer(ph_get(parsed(outcome.status), "readyReplicas"), 0) == 2);
    live = NULL;
}

static void a_host_that_is_no_dns_name_is_refused(void) {
    const char *hosts[] = {"My Blog", "blog_1", "-blog", "blog-", "blog..example.com", "blog.-a", ".blog", "blog.", ""};
    for (size_t index = 0; index < sizeof hosts / sizeof hosts[0]; index++) {
        ph_outcome outcome;
        assert(reconcile(ph_format("{'image': 'nginx', 'host': %s}", hosts[index]), &outcome) == PH_PERMANENT);
        assert(strncmp(outcome.failure, "spec.host is ", 13) == 0);
    }
}

static void json_is_read_and_written(void) {
    const ph_value *value = parsed(" {\"a\": [1, true, null, {\"b\": -25}], \"c\": \"x\\n\\u00e4\\ud83d\\ude00\\\"\" } ");
    assert(strcmp(ph_string(ph_get(value, "c"), ""), "x\n\xc3\xa4\xf0\x9f\x98\x80\"") == 0);
    assert(ph_get(value, "a.b") == NULL && ph_get(value, "c.d") == NULL && ph_get(NULL, "a") == NULL);
    assert(strcmp(ph_format("{'a': %s, 'b': %d}", "\"\n\t", -7LL), "{\"a\": \"\\\"\\n\\u0009\", \"b\": -7}") == 0);
    assert(strcmp(ph_json(ph_get(value, "a")), "[1, true, null, {\"b\": -25}]") == 0);
    const char *broken[] = {"", "{", "[1", "{\"a\"}", "{\"a\": 1,}", "\"a", "\"\\", "[] []", "\"\\u12\""};
    for (size_t index = 0; index < sizeof broken / sizeof broken[0]; index++) {
        // Without the byte behind it, which a reader must not look at.
        size_t length = strlen(broken[index]);
        char *exact = malloc(length > 0 ? length : 1);
        memcpy(exact, broken[index], length);
        assert(ph_parse(exact, length) == NULL);
    }
}

static void a_member_is_set_where_its_path_says(void) {
    const ph_value *value = parsed("{\"a\": 1, \"b\": {\"c.d\": [2], \"e\": \"\\n\"} }");
    assert(ph_integer(ph_get(value, "a"), 0) == 1 && ph_get(value, "b[\"c.d\"]") != NULL && ph_get(value, "b.c") == NULL);
    assert(strcmp(ph_set(value, "b[\"c.d\"]", "3"), "{\"a\": 1, \"b\": {\"e\": \"\\n\", \"c.d\": 3}}") == 0);
    assert(strcmp(ph_set(NULL, "f.g[\"h/i\"].j", "{}"), "{\"f\": {\"g\": {\"h/i\": {\"j\": {}}}}}") == 0);
}

static void an_object_belongs_to_its_controller(void) {
    const ph_value *owner = parsed("{\"metadata\": {\"uid\": \"u-1\"} }");
    const char *object = "{'metadata': {'ownerReferences': [{'uid': 'u-0'}, {'uid': %s, 'controller': %j}]}}";
    assert(ph_is_controlled_by(parsed(ph_format(object, "u-1", "true")), owner));
    assert(!ph_is_controlled_by(parsed(ph_format(object, "u-1", "false")), owner));
    assert(!ph_is_controlled_by(parsed(ph_format(object, "u-2", "true")), owner));
    assert(!ph_is_controlled_by(NULL, owner));
}

static void the_manifest_is_json(void) {
    const char *manifest = ph_manifest(&ph_operator);
    assert(strcmp(text_at(manifest, "name"), "website") == 0);
    assert(strstr(manifest, "\"crds\": [\"apiVersion") != NULL && strstr(manifest, "\"validator\": false") != NULL);
}

static void exceptions_to_the_life_of_an_object_are_kept(void) {
    ph_outcome outcome = {0};
    ph_own(&outcome, "{}");
    ph_own_with(&outcome, "{}", PH_KEEP | PH_REPLACE);
    assert(outcome.owned_count == 2 && outcome.lifecycles[0] == 0 && outcome.lifecycles[1] == (PH_KEEP | PH_REPLACE));
    ph_own_as(&outcome, "{}", PH_KEEP, ph_format("{'yield': ['.spec.replicas']}"));
    assert(outcome.lifecycles[2] == PH_KEEP && strcmp(outcome.options[2], "{\"yield\": [\".spec.replicas\"]}") == 0);
    assert(outcome.options[1] == NULL);
    ph_controller controller = *ph_operator.controllers[0];
    controller.options = "['replace']";
    const ph_controller *const controllers[] = {&controller};
    ph_plugin plugin = ph_operator;
    plugin.controllers = controllers;
    assert(strstr(ph_manifest(&plugin), "\"options\": [\"replace\"]") != NULL);
    assert(strstr(ph_manifest(&ph_operator), "\"options\": []") != NULL);
}

int main(void) {
    without_a_host_there_is_no_ingress();
    with_a_host_there_is_an_ingress();
    the_status_counts_the_ready_pods_of_the_live_deployment();
    a_host_that_is_no_dns_name_is_refused();
    json_is_read_and_written();
    a_member_is_set_where_its_path_says();
    an_object_belongs_to_its_controller();
    the_manifest_is_json();
    exceptions_to_the_life_of_an_object_are_kept();
    puts("9 tests passed");
}
