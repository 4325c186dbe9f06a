// Parse workflow files with GitHub's own parser, and write what it finds wrong: one line for each fault.
// Usage: node workflows.mjs <directory of the parser> <file>...
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, ...files] = process.argv.slice(2);
// The parser imports JSON as bundlers do, without saying that it is JSON.
registerHooks({
  load: (url, context, next) =>
    next(url, url.endsWith(".json") ? { ...context, importAttributes: { type: "json" } } : context),
});
const entry = `${packages}/node_modules/@actions/workflow-parser/dist/index.js`;
const { convertWorkflowTemplate, NoOperationTraceWriter, parseWorkflow } = await import(pathToFileURL(entry));
for (const file of files) {
  const source = { name: file, content: readFileSync(file, "utf8") };
  const parsed = parseWorkflow(source, new NoOperationTraceWriter());
  if (parsed.value) await convertWorkflowTemplate(parsed.context, parsed.value);
  for (const fault of parsed.context.errors.getErrors()) console.log(String(fault));
}
