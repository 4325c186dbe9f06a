// The tools in the TypeScript SDK, on node:http. Variables: PORT; PACKAGES, the directory with node_modules;
// MODE=json or sse; MODERN=1 for 2026-07-28.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const load = createRequire(`${process.env.PACKAGES}/`);
const { McpServer, createMcpHandler } = load('@modelcontextprotocol/server');
const { NodeStreamableHTTPServerTransport, toNodeHandler } = load('@modelcontextprotocol/node');
const z = load('zod');

const asJson = process.env.MODE !== 'sse';
const text = (value) => ({ content: [{ type: 'text', text: value }] });
const counted = z.object({ count: z.number() });
const form = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] };

function build() {
  const server = new McpServer({ name: 'bench', version: '1' });
  server.registerTool('echo', { description: 'Return the text.', inputSchema: z.object({ text: z.string() }) },
    async (given) => text(given.text));
  server.registerTool('events', { description: 'Send progress.', inputSchema: counted }, async ({ count }, context) => {
    const progressToken = context.mcpReq._meta.progressToken;
    for (let progress = 1; progress <= count; progress += 1) {
      await context.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: count } });
    }
    return text(String(count));
  });
  server.registerTool('asks', { description: 'Ask questions.', inputSchema: counted }, async ({ count }, context) => {
    // Without this option the questions go to the session's GET stream.
    const onThisCall = { relatedRequestId: context.mcpReq.id };
    const questions = Array.from({ length: count }, (_, number) =>
      context.mcpReq.elicitInput({ message: `question ${number}`, requestedSchema: form }, onThisCall));
    const answers = await Promise.all(questions);
    return text(answers.map((answer) => answer.content.value).join(','));
  });
  return server;
}

const transports = new Map();

async function inSession(request, response) {
  let transport = transports.get(request.headers['mcp-session-id']);
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      enableJsonResponse: asJson,
      onsessioninitialized: (id) => transports.set(id, transport),
    });
    await build().connect(transport);
  }
  await transport.handleRequest(request, response);
}

const alone = () => toNodeHandler(createMcpHandler(build, { legacy: 'reject', responseMode: asJson ? 'json' : 'sse' }));
const http = createServer(process.env.MODERN ? alone() : inSession);
http.keepAliveTimeout = 65_000;
http.listen(Number(process.env.PORT), '127.0.0.1');
