#!/usr/bin/env node
// Limpet is a Python package. This program starts it with uvx, at the version of this package, or says what is missing.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";

const { name, version } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
const words = ["--from", `${name}==${version}`, name, ...process.argv.slice(2)];

// A terminal sends its signals to both programs; others send them to this one only. Either way the child decides when it ends.
// The handlers are set before the child starts: a signal that comes between the two would end this program alone.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    if (!(signal === "SIGINT" && process.stdin.isTTY)) child.kill(signal);
  });
}
const child = spawn("uvx", words, { stdio: "inherit" });

child.on("error", (error) => {
  if (error.code !== "ENOENT") throw error;
  console.error(
    `${name}: uvx is not installed, and ${name} is a Python package that it starts. Either\n` +
      "  - install uv, which has uvx and brings Python: https://docs.astral.sh/uv/getting-started/installation/\n" +
      `  - or use Python 3.11 or newer without it: pipx run --spec ${name}==${version} ${name} …`,
  );
  process.exitCode = 127;
});
child.on("exit", (status, signal) => {
  process.exitCode = signal ? 128 + constants.signals[signal] : status;
});
