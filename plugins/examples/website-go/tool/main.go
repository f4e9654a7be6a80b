// Builds the component: go run ./tool [PACKAGE [OUTPUT]].
//
// Go builds a module that imports WASI's preview 1. wasm-tools, from PyPI, makes a component of it, in which tool/wasi.wat
// answers these imports, so that the component itself imports nothing of WASI. The WIT files are those of this repository, or
// the folder that PILOTHOUSE_WIT names.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func build() error {
	source, output := ".", filepath.Join("build", "website.wasm")
	if len(os.Args) > 1 {
		source = os.Args[1]
	}
	if len(os.Args) > 2 {
		output = os.Args[2]
	}
	if err := os.MkdirAll("build", 0o755); err != nil {
		return err
	}
	wasmTools, err := wasmTools()
	if err != nil {
		return err
	}
	answers, adapter := filepath.Join("tool", "wasi.wat"), filepath.Join("build", "wasi.wasm")
	wasi := filepath.Join("tool", "wasi.wit")
	if err := run(nil, wasmTools, "component", "embed", "--world", "wasi", wasi, answers, "--output", adapter); err != nil {
		return err
	}
	module, embedded := filepath.Join("build", "module.wasm"), filepath.Join("build", "embedded.wasm")
	target := []string{"GOOS=wasip1", "GOARCH=wasm"}
	flags := []string{"build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", module, source}
	if err := run(target, "go", flags...); err != nil {
		return err
	}
	wit := variable("PILOTHOUSE_WIT", filepath.Join("..", "..", "..", "wit"))
	if err := run(nil, wasmTools, "component", "embed", "--world", "plugin", wit, module, "--output", embedded); err != nil {
		return err
	}
	adapt := "wasi_snapshot_preview1=" + adapter
	return run(nil, wasmTools, "component", "new", "--adapt", adapt, embedded, "--output", output)
}

// wasmTools installs wasm-tools into a virtual environment of Python.
func wasmTools() (string, error) {
	folder := variable("VENV", ".venv")
	program := filepath.Join(folder, "bin", "wasm-tools")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := run(nil, variable("PYTHON", "python3"), "-m", "venv", folder); err != nil {
		return "", err
	}
	pip := filepath.Join(folder, "bin", "pip")
	return program, run(nil, pip, "install", "--quiet", "--disable-pip-version-check", "--requirement", "requirements.txt")
}

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func run(environment []string, program string, arguments ...string) error {
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %v: %w", program, arguments, err)
	}
	return nil
}
