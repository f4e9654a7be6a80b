// Command gitops says what GitOps tools make of an object: kstatus, by its own code, and Argo CD, by a health check in Lua.
//
// It reads lines of JSON, {"object": ..., "lua": "..."}, and answers each with {"kstatus": ..., "argocd": ...}, or with
// {"error": "..."}. The Lua runs as in Argo CD's util/lua: with the libraries that Argo CD opens, numbers as floats, and the
// object in the global variable obj.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type question struct {
	Object map[string]any `json:"object"`
	Lua    string         `json:"lua"`
}

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type answer struct {
	Kstatus *verdict `json:"kstatus,omitempty"`
	Argocd  *verdict `json:"argocd,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		given, err := ask(lines.Bytes())
		if err != nil {
			given.Error = err.Error()
		}
		if err := answers.Encode(given); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func ask(line []byte) (answer, error) {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{}, err
	}
	// kstatus wants integers as integers.
	text, err := json.Marshal(asked.Object)
	if err != nil {
		return answer{}, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return answer{}, err
	}
	computed, err := status.Compute(object)
	if err != nil {
		return answer{}, fmt.Errorf("kstatus: %w", err)
	}
	given := answer{Kstatus: &verdict{string(computed.Status), computed.Message}}
	if asked.Lua != "" {
		given.Argocd, err = health(asked.Lua, object)
	}
	return given, err
}

// health runs a health check of Argo CD.
func health(script string, object *unstructured.Unstructured) (*verdict, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	timeout, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(timeout)
	state.SetGlobal("obj", value(state, object.Object))
	if err := state.DoString(script); err != nil {
		return nil, fmt.Errorf("Lua: %w", err)
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("Lua: the health check returned %s, not a table", state.Get(-1).Type())
	}
	given := &verdict{Message: lua.LVAsString(table.RawGetString("message"))}
	given.Status = lua.LVAsString(table.RawGetString("status"))
	return given, nil
}

// value converts a value of JSON.
func value(state *lua.LState, given any) lua.LValue {
	switch given := given.(type) {
	case bool:
		return lua.LBool(given)
	case float64:
		return lua.LNumber(given)
	case int64:
		return lua.LNumber(given)
	case string:
		return lua.LString(given)
	case []any:
		list := state.CreateTable(len(given), 0)
		for _, item := range given {
			list.Append(value(state, item))
		}
		return list
	case map[string]any:
		table := state.CreateTable(0, len(given))
		for name, member := range given {
			table.RawSetString(name, value(state, member))
		}
		return table
	}
	return lua.LNil
}
