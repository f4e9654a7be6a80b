// Builds build/website.wasm: node build.js [ENTRY [OUTPUT]]. The WIT files are those of this repository, or the folder that
// PILOTHOUSE_WIT names. With KEEP_WASI=1 the imports of WASI are not replaced by stubs, and the plugin needs spec.wasi: Inert.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const root = import.meta.dirname;
const entry = process.argv[2] ?? "plugin.js";
const output = process.argv[3] ?? join("build", "website.wasm");
const wit = process.env.PILOTHOUSE_WIT ?? join(root, "..", "..", "..", "wit");

mkdirSync(join(root, "build"), { recursive: true });
// A module has no files at run time, so that the CRD has to be code.
const crd = readFileSync(join(root, "crd.yaml"), "utf8");
writeFileSync(join(root, "build", "crd.js"), `export default ${JSON.stringify(crd)};\n`);

const tool = join(dirname(createRequire(import.meta.url).resolve("componentize-qjs")), "bin", "componentize-qjs");
const options = ["--wit", wit, "--world", "plugin", "--js", entry, "--output", output, "--sync"];
if (process.env.KEEP_WASI !== "1") {
  options.push("--stub-wasi");
}
const { status } = spawnSync(process.execPath, [tool, ...options], { cwd: root, stdio: "inherit" });
process.exit(status ?? 1);
